"""What is learned on a user's own machine: the store of what compiles measured, answers from it, and a correction."""
