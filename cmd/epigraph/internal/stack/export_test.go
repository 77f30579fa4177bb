package stack

import "github.com/epigraph-run/epigraph/internal/turns"

// Computing are the turns for work that takes processors.
func (d *Dev) Computing() *turns.Turns { return d.computing }
