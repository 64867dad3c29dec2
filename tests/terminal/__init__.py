"""The terminal program in real terminals: tmux, a bare pty, OpenSSH; against a service with a real engine."""
