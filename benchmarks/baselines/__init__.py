"""What a model has to beat, beside the baselines of `diode.model.rankers`; none of it is shipped."""
