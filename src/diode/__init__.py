"""torch-diode: learned kernel choices for torch.compile."""

__version__ = "0.2.0"
