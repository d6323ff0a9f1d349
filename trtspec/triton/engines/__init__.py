"""The front's side of each engine: adapters that know an engine's tensors and speak the Engine protocol."""
