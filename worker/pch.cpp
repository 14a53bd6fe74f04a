// The precompiled header's own target needs one source.
