package gateway

import (
	"fmt"
	"path"
	"strings"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	"github.com/epigraph-run/epigraph/services/gateway/internal/cells"
)

// Cell is one database with its executors and its registry, as the gateway finds them.
type Cell struct {
	Name string
	// Executor and Registry are host:port, or several of them separated by commas.
	Executor, Registry string
}

// PlacementRule places namespaces.
type PlacementRule struct {
	// Namespaces is a namespace, or a pattern: * stands for any letters, ? for one.
	Namespaces string
	// Cell is the name of a cell.
	Cell string
	// Closed refuses everything but reads, while the namespace is moved.
	Closed bool
}

// placements is a Placement that was read from the configuration: the first rule that matches holds.
type placements struct {
	rules    []PlacementRule
	fallback string
}

func (p placements) Place(namespace string) (cells.Place, error) {
	for _, r := range p.rules {
		if ok, _ := path.Match(r.Namespaces, namespace); ok { // patterns were checked
			return cells.Place{Cell: r.Cell, Closed: r.Closed}, nil
		}
	}
	if p.fallback == "" {
		return cells.Place{}, errs.New(errs.FailedPrecondition, "NAMESPACE_NOT_PLACED", "namespace %q is placed in no cell", namespace).
			Hint("add it to gateway.placements, or set gateway.default_cell")
	}
	return cells.Place{Cell: p.fallback}, nil
}

func (c Config) placement() cells.Placement {
	return placements{rules: c.Placements, fallback: c.DefaultCell}
}

// validateCells reports everything about cells that cannot be used.
func (c Config) validateCells() []error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if c.CellInFlight <= 0 {
		fault("cell_in_flight must be positive, got %d", c.CellInFlight)
	}
	if len(c.Cells) == 0 {
		if len(c.Placements) > 0 || c.DefaultCell != "" {
			fault("placements and default_cell need cells")
		}
		return faults
	}
	names, addresses := map[string]bool{}, map[string]string{}
	for i, cell := range c.Cells {
		switch {
		case !grpckit.ValidNamespace(cell.Name):
			// limited letters, so that names can be used in metrics and errors
			fault("cells[%d]: name %q is not valid: lower-case letters, digits and dashes, at most 63", i, cell.Name)
		case names[cell.Name]:
			fault("cells[%d]: there is another cell %q", i, cell.Name)
		}
		names[cell.Name] = true
		for what, addr := range map[string]string{"executor": cell.Executor, "registry": cell.Registry} {
			if addr == "" {
				fault("cells[%d] (%s): %s must be host:port", i, cell.Name, what)
			} else if other, ok := addresses[what+" "+addr]; ok {
				fault("cells[%d] (%s): its %s is that of cell %q", i, cell.Name, what, other)
			}
			addresses[what+" "+addr] = cell.Name
		}
	}
	known := func(where, name string) {
		if !names[name] {
			fault("%s: there is no cell %q", where, name)
		}
	}
	for i, r := range c.Placements {
		where := fmt.Sprintf("placements[%d] (%s)", i, r.Namespaces)
		if _, err := path.Match(r.Namespaces, ""); err != nil || r.Namespaces == "" || strings.Trim(r.Namespaces, "abcdefghijklmnopqrstuvwxyz0123456789-*?") != "" {
			fault("%s: namespaces must be a namespace or a pattern with * and ?", where)
		}
		known(where, r.Cell)
	}
	if c.DefaultCell != "" {
		known("default_cell", c.DefaultCell)
	}
	if len(faults) > 0 {
		return faults
	}
	for i, k := range c.Keys {
		if _, err := c.placement().Place(k.Namespace); err != nil {
			fault("keys[%d] (%s): namespace %q is placed in no cell", i, k.Name, k.Namespace)
		}
	}
	return faults
}

// router finds the way to the cells of the configuration, or to the only one.
func (c Config) router(d Deps) (*cells.Router, error) {
	o := cells.Options{MaxInFlight: c.CellInFlight, Pause: cellPause, Failures: cellFailures, Meter: d.Telemetry.Meter(scope)}
	if len(c.Cells) == 0 {
		return cells.Single(d.Executor, d.Registry, o)
	}
	var all []cells.Cell
	for _, cell := range c.Cells {
		conns := d.Cells[cell.Name]
		if conns.Executor == nil || conns.Registry == nil {
			return nil, errs.New(errs.Internal, "DEPS_INCOMPLETE", "gateway: connections to executor and registry of cell %q are required", cell.Name)
		}
		all = append(all, cells.Cell{Name: cell.Name, Executor: conns.Executor, Registry: conns.Registry})
	}
	return cells.New(c.placement(), all, o)
}
