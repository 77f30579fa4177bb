package meaning

import "github.com/epigraph-run/epigraph/plan/internal/form"

func readProse(*form.Source) []*Reading { return nil }
