"""Ready-made systems on the public API, each optional."""
