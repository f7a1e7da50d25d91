"""Files of experiments, and what they hold."""
