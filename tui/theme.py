"""The program's own colour themes for Textual. Not here: styles by meaning (looks.py), sizes (theme.tcss)."""

from textual.theme import Theme

from tui.looks import Colours

SAFE = Theme(
    name="colibri-safe", dark=True, primary="#56B4E9", secondary="#CC79A7", accent="#56B4E9", warning="#E69F00",
    error="#F0752A", success="#56B4E9", foreground="#D5DAE1", background="#0B0E14", surface="#0B0E14", panel="#151A23",
    variables={
        "border-rest": "#4A5568", "border-focus": "#56B4E9", "title": "#C9D1D9", "block-cursor-background": "#2B4A66",
        "block-cursor-foreground": "#FFFFFF", "block-cursor-text-style": "none",
        "block-cursor-blurred-background": "#1E2A38",
        "block-cursor-blurred-foreground": "#D5DAE1",
    },
)  # fmt: skip
LIGHT = Theme(
    name="colibri-safe-light", dark=False, primary="#0072B2", secondary="#9B3F78", accent="#0072B2", warning="#9A5B00",
    error="#A83A00", success="#0072B2", foreground="#1F2328", background="#FFFFFF", surface="#FFFFFF", panel="#EEF1F4",
    variables={
        "border-rest": "#A0A8B4", "border-focus": "#0072B2", "title": "#24292F", "block-cursor-background": "#CFE6F7",
        "block-cursor-foreground": "#000000", "block-cursor-text-style": "none",
        "block-cursor-blurred-background": "#E4EBF1",
        "block-cursor-blurred-foreground": "#1F2328",
    },
)  # fmt: skip
# For terminals of 16 colours and, with every colour taken away, of none: the terminal's own ground and letters.
SIXTEEN = Theme(
    name="colibri-16", ansi=True, dark=True, primary="ansi_bright_cyan", secondary="ansi_bright_magenta",
    accent="ansi_bright_cyan", warning="ansi_yellow", error="ansi_bright_red", success="ansi_bright_cyan",
    foreground="ansi_default", background="ansi_default", surface="ansi_default", panel="ansi_default",
    boost="ansi_default",
    variables={
        "border-rest": "ansi_white", "border-focus": "ansi_bright_cyan", "title": "ansi_default",
        "ansi-background": "ansi_black", "ansi-foreground": "ansi_white", "border-blurred": "ansi_white",
        "block-cursor-foreground": "ansi_black", "block-cursor-background": "ansi_white",
        "block-cursor-text-style": "none",
        "block-cursor-blurred-background": "ansi_default",
        "block-cursor-blurred-foreground": "ansi_default", "input-cursor-background": "ansi_white",
        "input-cursor-foreground": "ansi_black", "input-cursor-text-style": "none",
        "input-selection-background": "ansi_bright_blue", "input-selection-foreground": "ansi_black",
        "screen-selection-background": "ansi_bright_blue", "screen-selection-foreground": "ansi_black",
    },
)  # fmt: skip
OWN = (SAFE, LIGHT, SIXTEEN)


def first_theme(colours: Colours, wanted: str = "") -> str:
    """The theme a terminal begins with; a wanted one only where there are colours enough for it."""
    return (wanted or SAFE.name) if colours == "full" else SIXTEEN.name
