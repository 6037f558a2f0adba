"""JSON schemas: of a function's arguments, of an output type, and as vendors accept them."""
