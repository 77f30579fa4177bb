package catalog

import (
	"crypto/sha256"
	"encoding/binary"
	"math/rand/v2"
	"strconv"
	"strings"

	"github.com/epigraph-run/epigraph/internal/errs"
)

// ReasonRefInvalid refuses a text that is no reference to a workflow.
const ReasonRefInvalid = "WORKFLOW_REF_INVALID"

// Ref is a reference: the slug or id of a workflow with a version, an alias or neither.
type Ref struct {
	Name    string
	Version int64
	Alias   string
}

// ParseRef reads NAME, NAME@VERSION or NAME@ALIAS. The prefix workflow/ of references in graphs is left out.
func ParseRef(s string) (Ref, error) {
	name, rest, at := strings.Cut(strings.TrimPrefix(strings.TrimSpace(s), "workflow/"), "@")
	bad := func() (Ref, error) {
		return Ref{}, errs.New(errs.InvalidArgument, ReasonRefInvalid, "%q is no reference to a workflow", errs.Clip(s, 200)).
			Hint("write NAME, NAME@VERSION or NAME@ALIAS, such as digest, digest@3 or digest@prod")
	}
	if name == "" || at && rest == "" {
		return bad()
	}
	if !at {
		return Ref{Name: name}, nil
	}
	if rest[0] < '0' || rest[0] > '9' {
		return Ref{Name: name, Alias: rest}, nil
	}
	n, err := strconv.ParseInt(rest, 10, 64)
	if err != nil || n < 1 || rest != strconv.FormatInt(n, 10) {
		return bad()
	}
	return Ref{Name: name, Version: n}, nil
}

// Pick is the number of the version that a reference to the workflow stands for. Among the versions of
// an alias the key chooses, always the same for as long as the alias stays; without a key, chance does.
func (w *Workflow) Pick(r Ref, key string) (int64, error) {
	switch {
	case r.Version > 0:
		return r.Version, nil
	case r.Alias == "":
		return w.Latest, nil
	}
	i, found := w.alias(r.Alias)
	if !found {
		return 0, w.noAlias(r.Alias)
	}
	return w.Aliases[i].pick(w.ID, key), nil
}

// pick must not change: keys would be given other versions.
func (a Alias) pick(workflow, key string) int64 {
	var all uint64
	for _, v := range a.Versions {
		all += uint64(v.Weight)
	}
	n := rand.Uint64()
	if key != "" {
		sum := sha256.Sum256([]byte(workflow + "\x00" + a.Name + "\x00" + key))
		n = binary.BigEndian.Uint64(sum[:8])
	}
	n %= all
	for _, v := range a.Versions {
		if n < uint64(v.Weight) {
			return v.Version
		}
		n -= uint64(v.Weight)
	}
	return a.Versions[len(a.Versions)-1].Version
}

// At is the reference to a version.
func At(slug string, version int64) string { return slug + "@" + strconv.FormatInt(version, 10) }
