"""`rewards demo`: both rewards at work in the shapes world, offline, in minutes."""
