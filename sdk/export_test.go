package epigraph

import "github.com/epigraph-run/epigraph/sdk/resolve"

// WithLookup finds the addresses of names in place of the resolver of this process.
func WithLookup(l resolve.Lookup) Option { return func(o *options) { o.lookup = l } }
