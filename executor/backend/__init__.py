"""One module a kind of device; everything else of the executor is device-free."""
