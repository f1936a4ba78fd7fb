"""Text to measure and train on."""
