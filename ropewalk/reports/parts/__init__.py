"""What pages of several commands share: the run directory as read, and blocks of its results."""
