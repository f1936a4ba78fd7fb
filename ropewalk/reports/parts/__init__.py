"""Parts that pages of several commands share: blocks of results, and paths as shown."""
