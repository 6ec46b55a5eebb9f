"""The process that has Inductor compile, check and time its own choices for this CPU."""

from diode.collection.cpu.executor import CpuExecutor

__all__ = ["CpuExecutor"]
