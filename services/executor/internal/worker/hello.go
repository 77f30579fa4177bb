package worker

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/workgraph"
)

const (
	// maxSchema bounds one actor's schema in bytes.
	maxSchema = 64 << 10
	// schemaBytes is how many bytes of schemas cost as much as a node of a graph to check.
	schemaBytes = 50
	// Codes of the violations of a hello.
	codeReserved  = "ACTOR_NAME_RESERVED"
	codeName      = "ACTOR_NAME_INVALID"
	codeRepeated  = "ACTOR_REPEATED"
	codeSchema    = "SCHEMA_INVALID"
	codeText      = "TEXT_INVALID"
	codeSchemaBig = "SCHEMA_TOO_LARGE"
)

// reserved are the first parts of names that actors of the suite have, now or under a server or workflow of
// that name.
var reserved = []string{"mcp/", "a2a/", "workflow/"}

// readHello checks what a worker serves and reports all faults at once.
func (s *Server) readHello(ctx context.Context, h *executorv1.WorkerHello) ([]journal.RemoteActor, error) {
	e := errs.New(errs.InvalidArgument, ReasonHelloInvalid, "the worker cannot be accepted")
	fault := func(i int, field, code, format string, args ...any) {
		e = e.Violate(fmt.Sprintf("hello.actors[%d].%s", i, field), code, fmt.Sprintf(format, args...))
	}
	// The facts about a worker are written for other executors together with others of its namespace, so one
	// bad text would hide those.
	for _, t := range []struct{ field, text string }{{"worker_id", h.GetWorkerId()}, {"user_agent", h.GetUserAgent()}} {
		if strings.IndexByte(t.text, 0) >= 0 {
			e = e.Violate("hello."+t.field, codeText, "the "+t.field+" must not contain the NUL character")
		}
	}
	// Schemas are compiled in the turns of the namespace: a hello may contain megabytes of them, and workers
	// come at any time.
	bytes := 0
	for _, a := range h.GetActors() {
		bytes += len(a.GetArgsSchema().GetJson())
	}
	leave, err := s.reader.admission.Enter(ctx, grpckit.Namespace(ctx), bytes/schemaBytes)
	if err != nil {
		return nil, err
	}
	defer leave()
	seen := map[string]bool{}
	now := dbkit.Now()
	out := make([]journal.RemoteActor, 0, len(h.GetActors()))
	for i, a := range h.GetActors() {
		n := a.GetName()
		_, builtin := s.builtin.ActorInfo(n)
		switch {
		case seen[n]:
			fault(i, "name", codeRepeated, "actor %q is named twice", n)
		case builtin:
			fault(i, "name", codeReserved, "%q is a built-in actor; choose another name, for example %q", n, "my/"+n)
		case slices.ContainsFunc(reserved, func(p string) bool { return strings.HasPrefix(n, p) }):
			fault(i, "name", codeReserved, "names that begin with %s belong to the suite", n[:strings.Index(n, "/")+1])
		case strings.ContainsFunc(n, func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) }):
			fault(i, "name", codeName, "%q has a blank or a control character", n)
		}
		for _, t := range []struct{ field, text string }{{"description", a.GetDescription()}, {"version", a.GetVersion()}} {
			if strings.IndexByte(t.text, 0) >= 0 {
				fault(i, t.field, codeText, "the %s of %q must not contain the NUL character", t.field, n)
			}
		}
		seen[n] = true
		effect := workgraph.Unsafe
		switch a.GetEffect() {
		case graphv1.Effect_EFFECT_PURE:
			effect = workgraph.Pure
		case graphv1.Effect_EFFECT_IDEMPOTENT:
			effect = workgraph.Idempotent
		}
		schema := a.GetArgsSchema().GetJson()
		switch err := compileSchema(ctx, schema); {
		case len(schema) > maxSchema:
			fault(i, "args_schema", codeSchemaBig, "the schema of %q has %d bytes, the limit is %d", n, len(schema), maxSchema)
		case err != nil:
			fault(i, "args_schema", codeSchema, "the schema of %q: %v", n, err)
		}
		out = append(out, journal.RemoteActor{Name: n, Description: a.GetDescription(), Effect: string(effect), Version: a.GetVersion(),
			Schema: schema, LastSeen: now})
	}
	if len(e.Violations) > 0 {
		e.Message = "the worker cannot be accepted: " + e.Violations[0].Message
		return nil, e
	}
	return out, nil
}

func compileSchema(ctx context.Context, raw json.RawMessage) error {
	if len(raw) == 0 || len(raw) > maxSchema {
		return nil
	}
	_, err := workgraph.CompileSchema(ctx, raw)
	return err
}
