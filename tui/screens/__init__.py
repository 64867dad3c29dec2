"""The screens, one file each. Not here: dialogs, the parts they share."""
