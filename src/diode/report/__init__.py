"""What a model is and how good it is, as pictures and as one page: `diode report`."""
