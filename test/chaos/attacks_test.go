package chaos_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/gzip" // so that messages can be sent compressed
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
)

// assault is one hostile request.
type assault struct {
	name string
	// to is the path of a REST request, or service/method of a call by gRPC.
	to, key string
	rpc     bool
	body    []byte
	// encoding of the body, as the headers say it; a message by gRPC is compressed when it is sent.
	encoding string
}

// attack is an assault of any size.
type attack struct {
	assault
	make func(n func(most int) int) []byte
	// want are the answers that show that the assault, whole and alone, comes where it is meant to.
	want []string
}

// whole is the assault at a share of its full size.
func (w *attack) whole(scale float64) assault {
	a := w.assault
	a.body = w.make(func(most int) int { return max(1, int(float64(most)*scale)) })
	return a
}

// send sends an assault and returns the answer in a word: OK, FAULTS for a graph with faults, a reason, or
// the way it was cut off.
func (s *soak) send(ctx context.Context, a *assault, most time.Duration) string {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	if a.rpc {
		return s.invoke(ctx, a)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+strings.Replace(a.to, "{run}", s.waiting, 1), bytes.NewReader(a.body))
	if err != nil {
		return err.Error()
	}
	req.Header.Set("Content-Type", "application/json")
	if a.key != "" {
		req.Header.Set("Authorization", "Bearer "+a.key)
	}
	if a.encoding != "" {
		req.Header.Set("Content-Encoding", a.encoding)
	}
	resp, err := s.web.Do(req)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return "no answer in time"
	case err != nil:
		return "cut off"
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, 16<<20))
	if err != nil {
		return "cut off"
	}
	var answer struct {
		Reason string
		Faults []any
	}
	_ = json.Unmarshal(b, &answer) // an answer that is no JSON has no reason
	switch {
	case len(answer.Faults) > 0:
		return "FAULTS"
	case resp.StatusCode == http.StatusOK:
		return "OK"
	case resp.StatusCode == http.StatusNotFound || resp.StatusCode == http.StatusMethodNotAllowed || answer.Reason == "":
		return fmt.Sprint(resp.StatusCode, " ", answer.Reason)
	}
	return answer.Reason
}

// rawCodec sends bytes as they are and drops answers.
type rawCodec struct{}

var _ encoding.Codec = rawCodec{}

func (rawCodec) Marshal(v any) ([]byte, error)   { return v.([]byte), nil }
func (rawCodec) Unmarshal(_ []byte, _ any) error { return nil }
func (rawCodec) Name() string                    { return "proto" }

func (s *soak) invoke(ctx context.Context, a *assault) string {
	service, _, _ := strings.Cut(a.to, "/")
	if a.key != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+a.key)
	}
	opts := []grpc.CallOption{grpc.ForceCodec(rawCodec{})}
	if a.encoding != "" {
		opts = append(opts, grpc.UseCompressor(a.encoding))
	}
	_, method, _ := strings.Cut(a.to, "/")
	title := strings.ToUpper(service[:1]) + service[1:]
	err := s.conns[service].Invoke(ctx, fmt.Sprintf("/epigraph.%s.v1.%sService/%s", service, title, method), a.body, nil, opts...)
	if err == nil {
		return "OK"
	}
	st := status.Convert(err)
	for _, d := range st.Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok {
			return info.GetReason()
		}
	}
	switch st.Code() {
	case codes.DeadlineExceeded:
		return "no answer in time"
	case codes.Internal:
		return "INTERNAL"
	case codes.Unimplemented:
		return "404 UNIMPLEMENTED"
	}
	return st.Code().String()
}

// message is a field of a message in its wire form.
func message(field protowire.Number, body []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, field, protowire.BytesType), body)
}

// written are the recorded attacks: those that once took a process down or delayed others, and their kind.
func written() []attack {
	var out []attack
	rest := func(name, path string, body func(n func(int) int) string, want ...string) {
		out = append(out, attack{assault{name: name, to: path, key: hostileKey}, func(n func(int) int) []byte { return []byte(body(n)) }, want})
	}
	// both sends a graph to be checked and to be run.
	both := func(name string, body func(n func(int) int) string, validate, start []string) {
		rest(name+"/validate", "/v1/graphs:validate", body, validate...)
		rest(name+"/start", "/v1/runs", body, start...)
	}
	one := func(s ...string) []string { return s }
	list := func(n int, el func(i int) string) string {
		out := make([]string, n)
		for i := range out {
			out[i] = el(i)
		}
		return strings.Join(out, ",")
	}
	quote := func(s string) string {
		b, _ := json.Marshal(s) // a string always marshals
		return string(b)
	}
	graph := func(nodes, edges string) string {
		return `{"graph": {"nodes": [` + nodes + `], "edges": [` + edges + `]}}`
	}

	// Bytes, by REST.
	both("bytes/empty nodes", func(n func(int) int) string {
		return `{"graph": {"nodes": [` + strings.TrimSuffix(strings.Repeat("{},", n(2_000_000)), ",") + `]}}`
	}, one("REPEATED_MAX_ITEMS"), one("REPEATED_MAX_ITEMS"))
	both("bytes/nested objects", func(n func(int) int) string { return strings.Repeat(`{"graph":`, n(100_000)) }, one("JSON_TOO_DEEP"), one("JSON_TOO_DEEP"))
	both("bytes/nested lists", func(n func(int) int) string { return `{"graph": ` + strings.Repeat("[", n(1_000_000)) }, one("JSON_TOO_DEEP"), one("JSON_TOO_DEEP"))
	both("bytes/large value", func(n func(int) int) string {
		return graph(`{"id": "a", "actor": "cel", "named": {"expr": "1", "x": `+quote(base64.StdEncoding.EncodeToString(make([]byte, n(4<<20))))+`}}`, "")
	}, one("OK"), one("OK", "PAYLOAD_TOO_LARGE"))
	rest("bytes/labels", "/v1/runs", func(n func(int) int) string {
		return `{"labels": {` + list(n(100_000), func(i int) string { return fmt.Sprintf(`"l%d": "v"`, i) }) + `}, "graph": {"nodes": [{"id": "a", "actor": "cel"}]}}`
	}, "MAP_MAX_PAIRS")
	rest("bytes/usage", "/v1/usage:record", func(n func(int) int) string {
		return `{"entries": [` + strings.TrimSuffix(strings.Repeat("{},", n(1_000_000)), ",") + `]}`
	}, "REPEATED_MAX_ITEMS")
	bomb := func(n func(int) int) []byte {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		_, _ = z.Write([]byte(`{"graph": {"nodes": [` + strings.TrimSuffix(strings.Repeat("{},", n(3_000_000)), ",") + `]}}`))
		_ = z.Close()
		return b.Bytes()
	}
	out = append(out, attack{assault{name: "bytes/gzip", to: "/v1/graphs:validate", key: hostileKey, encoding: "gzip"}, bomb, one("UNSUPPORTED_MEDIA_TYPE")},
		attack{assault{name: "bytes/gzip without a key", to: "/v1/runs", encoding: "gzip"}, bomb, one("CREDENTIALS_MISSING")})

	// Bytes, by gRPC.
	elements := func(field protowire.Number) func(n func(int) int) []byte {
		return func(n func(int) int) []byte { return bytes.Repeat(message(field, nil), n(8_000_000)) }
	}
	within := func(field protowire.Number, body func(n func(int) int) []byte) func(n func(int) int) []byte {
		return func(n func(int) int) []byte { return message(field, body(n)) }
	}
	deep := func(n func(int) int) []byte { // groups that nobody knows, within each other
		return append(bytes.Repeat(protowire.AppendTag(nil, 1000, protowire.StartGroupType), n(100_000)),
			bytes.Repeat(protowire.AppendTag(nil, 1000, protowire.EndGroupType), n(100_000))...)
	}
	for to, empty := range map[string]func(n func(int) int) []byte{
		"executor/StartRun": within(1, elements(2)), "executor/ValidateGraph": within(1, elements(3)), "planner/CompilePlan": within(2, elements(1)), "registry/RecordUsage": elements(1),
	} {
		for _, c := range []struct {
			name, key, encoding string
			make                func(n func(int) int) []byte
			want                []string
		}{
			{"empty", "", "", empty, one("CREDENTIALS_MISSING")},
			{"empty gzip", "", "gzip", empty, one("CREDENTIALS_MISSING")},
			{"empty wrong key", "wrong", "", empty, one("CREDENTIALS_INVALID")},
			{"empty with key", hostileKey, "", empty, one("REQUEST_INVALID", "TOO_MANY_ELEMENTS", "REQUEST_TOO_LARGE")},
			{"empty gzip with key", hostileKey, "gzip", empty, one("COMPRESSION_NOT_SUPPORTED")},
			{"deep with key", hostileKey, "", deep, one("MESSAGE_MALFORMED")},
		} {
			out = append(out, attack{assault{name: "grpc/" + to + "/" + c.name, to: to, key: c.key, rpc: true, encoding: c.encoding}, c.make, c.want})
		}
	}

	// Expressions.
	for name, e := range map[string]struct {
		expr func(n func(int) int) string
		// valid is what validation says: OK, or FAULTS where a whole one is beyond the bounds of a text.
		valid string
	}{
		"replace":    {func(func(int) int) string { return "named.s.replace('a', named.s)" }, "OK"},
		"distinct":   {func(func(int) int) string { return "named.s.split('').distinct()" }, "OK"},
		"matches":    {func(func(int) int) string { return "named.s.matches('(a?a?a?)*b$')" }, "OK"},
		"join":       {func(func(int) int) string { return "named.s.split('').join(named.s)" }, "OK"},
		"sets":       {func(func(int) int) string { return "sets.equivalent(named.s.split(''), named.s.split(''))" }, "OK"},
		"ranges":     {func(func(int) int) string { return "named.s.split('').map(x, named.s.split('').size())" }, "OK"},
		"nested":     {func(n func(int) int) string { return strings.Repeat("[", n(240)) + strings.Repeat("]", n(240)) }, "FAULTS"},
		"long text":  {func(n func(int) int) string { return "'" + strings.Repeat("x", n(16_000)) + "'.size()" }, "OK"},
		"many signs": {func(n func(int) int) string { return strings.Repeat("1+", n(7_000)) + "1" }, "FAULTS"},
		"macros": {func(n func(int) int) string {
			return strings.Repeat("[1].map(x, ", n(60)) + "1" + strings.Repeat(")", n(60))
		}, "FAULTS"},
		"huge repeat": {func(n func(int) int) string { return fmt.Sprintf("named.s.matches('((a{%d}){100}){100}')", n(100)) }, "FAULTS"},
	} {
		valid, start := one("OK"), one("OK")
		if e.valid == "FAULTS" {
			valid, start = one("FAULTS", "OK"), one("GRAPH_INVALID", "OK")
		}
		text := func(n func(int) int) string { return quote(strings.Repeat("a", n(200_000))) }
		rest("expression/"+name+"/actor/validate", "/v1/graphs:validate", func(n func(int) int) string {
			return `{"input": {"named": {"s": ` + text(n) + `}}, "graph": {"nodes": [{"id": "a", "actor": "cel", "named": {"expr": ` + quote(e.expr(n)) + `}}]}}`
		}, valid...)
		rest("expression/"+name+"/actor/start", "/v1/runs", func(n func(int) int) string {
			return `{"named": {"s": ` + text(n) + `}, "graph": {"nodes": [{"id": "a", "actor": "cel", "named": {"expr": ` + quote(e.expr(n)) + `}}]}}`
		}, start...)
		rest("expression/"+name+"/when/start", "/v1/runs", func(n func(int) int) string {
			return `{"named": {"s": ` + text(n) + `}, "graph": {"nodes": [{"id": "a", "actor": "template", "when": ` + quote("dyn("+e.expr(n)+") != null") + `, "named": {"text": "x"}}]}}`
		}, start...)
	}
	rest("expression/many nodes", "/v1/runs", func(n func(int) int) string {
		return graph(list(n(224), func(i int) string {
			return fmt.Sprintf(`{"id": "n%d", "actor": "cel", "named": {"expr": "lists.range(3000).map(x, lists.range(300).size() + %d)"}}`, i, i)
		}), "")
	}, "OK")
	both("expression/many conditions", func(n func(int) int) string {
		return graph(list(n(2_000), func(i int) string {
			return fmt.Sprintf(`{"id": "n%d", "actor": "cel", "named": {"expr": "1"}, "when": "has(input.named.a%d) && input.named.a%d == %d"}`, i, i, i, i)
		}), "")
	}, one("OK"), one("OK"))
	both("expression/template", func(n func(int) int) string {
		return graph(`{"id": "a", "actor": "template", "named": {"text": `+quote(strings.Repeat("{{ [[[[1]]]].map(x, x.map(y, y)) }}", n(900)))+`}}`, "")
	}, one("OK"), one("OK"))

	// Graphs.
	nodes := func(n int) string {
		return list(n, func(i int) string { return fmt.Sprintf(`{"id": "n%d", "actor": "cel", "named": {"expr": "1"}}`, i) })
	}
	both("graph/unknown ends", func(n func(int) int) string {
		return graph(nodes(n(20_000)), list(n(60_000), func(i int) string { return fmt.Sprintf(`{"from": "u%d", "to": "v%d"}`, i, i) }))
	}, one("FAULTS"), one("GRAPH_INVALID"))
	both("graph/back edges", func(n func(int) int) string {
		return graph(nodes(n(20_000)), list(n(60_000), func(i int) string {
			return fmt.Sprintf(`{"from": "n%d", "to": "n%d", "kind": "EDGE_KIND_BACK"}`, i%n(20_000), i*7%n(20_000))
		}))
	}, one("FAULTS"), one("GRAPH_INVALID"))
	both("graph/dense", func(n func(int) int) string {
		k := n(400)
		var edges []string
		for i := range k {
			for j := i + 1; j < k; j++ {
				edges = append(edges, fmt.Sprintf(`{"from": "n%d", "to": "n%d"}`, i, j))
			}
		}
		return graph(nodes(k), strings.Join(edges, ","))
	}, one("OK"), one("OK"))
	both("graph/references", func(n func(int) int) string {
		k := n(5_000)
		return graph(list(k, func(i int) string {
			return fmt.Sprintf(`{"id": "n%d", "actor": "cel", "named": {"expr": "nodes.n%d.result"}}`, i, k-1-i)
		}), list(k-1, func(i int) string { return fmt.Sprintf(`{"from": "n%d", "to": "n%d"}`, i, i+1) }))
	}, one("FAULTS"), one("GRAPH_INVALID"))
	both("graph/same ids", func(n func(int) int) string {
		return graph(list(n(30_000), func(int) string { return `{"id": "same", "actor": "cel"}` }), "")
	}, one("FAULTS"), one("GRAPH_INVALID"))
	both("graph/unknown actors", func(n func(int) int) string {
		return graph(list(n(20_000), func(i int) string {
			return fmt.Sprintf(`{"id": "n%d", "actor": "an-actor-that-nobody-knows-%d"}`, i, i)
		}), "")
	}, one("FAULTS"), one("GRAPH_INVALID"))
	both("graph/long ids", func(n func(int) int) string {
		return graph(`{"id": `+quote(strings.Repeat("i", n(1_000_000)))+`, "actor": `+quote(strings.Repeat("a", n(1_000_000)))+`}`, "")
	}, one("REQUEST_INVALID"), one("REQUEST_INVALID"))
	rest("graph/map of many", "/v1/runs", func(n func(int) int) string {
		return fmt.Sprintf(`{"graph": {"nodes": [{"id": "a", "actor": "cel", "named": {"expr": "1"}, "map": {"over": "lists.range(%d)", "maxParallel": 100}}]}}`, n(50_000))
	}, "OK")
	rest("graph/endless loop", "/v1/runs", func(n func(int) int) string {
		return fmt.Sprintf(`{"graph": {"nodes": [{"id": "a", "actor": "cel", "named": {"expr": "1"}, "maxVisits": %d}], "edges": [{"from": "a", "to": "a", "kind": "EDGE_KIND_BACK", "when": "true"}]}}`, n(2_000))
	}, "OK")
	rest("graph/small with large results", "/v1/runs", func(n func(int) int) string {
		expr := quote("lists.range(2500).map(x, '" + strings.Repeat("x", 200) + "')")
		return graph(list(n(60), func(i int) string {
			return fmt.Sprintf(`{"id": "n%d", "actor": "cel", "named": {"expr": %s}}`, i, expr)
		}), "")
	}, "OK")
	rest("graph/forks of itself", "/v1/runs", func(n func(int) int) string {
		return `{"graph": {"nodes": [{"id": "a", "actor": "spawn", "named": {"runs": [` + list(n(200), func(int) string { return `{"ref": "self"}` }) + `]}}]}}`
	}, "OK")

	// Schemas.
	numbers := func(from int) func(i int) string { return func(i int) string { return fmt.Sprintf("%d.5", from+i) } }
	rest("schema/enum", "/v1/runs", func(n func(int) int) string {
		return `{"named": {"x": [` + list(n(15_000), numbers(20_000)) + `]}, "graph": {"nodes": [{"id": "a", "actor": "cel", "named": {"expr": "named.x"}, "check": {"jsonSchema": {"items": {"enum": [` + list(n(15_000), numbers(0)) + `]}}}}]}}`
	}, "OK")
	rest("schema/contains", "/v1/runs", func(n func(int) int) string {
		return `{"named": {"x": [` + list(n(20_000), numbers(0)) + `]}, "graph": {"nodes": [{"id": "a", "actor": "cel", "named": {"expr": "named.x"}, "check": {"jsonSchema": {"allOf": [` + list(n(2_000), func(int) string { return `{"contains": {"const": 7}}` }) + `]}}}]}}`
	}, "OK")
	both("schema/patterns", func(n func(int) int) string {
		return graph(list(n(5_000), func(i int) string {
			return fmt.Sprintf(`{"id": "n%d", "actor": "cel", "named": {"expr": "1"}, "check": {"jsonSchema": {"pattern": "(a{%d}){10}"}}}`, i, i%90)
		}), "")
	}, one("OK", "FAULTS"), one("OK", "GRAPH_INVALID"))
	both("schema/many parts", func(n func(int) int) string {
		return graph(list(n(40), func(i int) string {
			return fmt.Sprintf(`{"id": "n%d", "actor": "cel", "named": {"expr": "1"}, "check": {"jsonSchema": {"$id": "s%d", "allOf": [`, i, i) + list(2_400, func(k int) string { return fmt.Sprintf(`{"minLength": %d}`, k) }) + `]}}}`
		}), "")
	}, one("FAULTS"), one("GRAPH_INVALID"))

	// Plans.
	for name, plan := range map[string]func(n func(int) int) string{
		"chain":  func(n func(int) int) string { return strings.Repeat("A -> B\n", n(140_000)) },
		"groups": func(n func(int) int) string { return strings.Repeat("A, B -> C, D\n", n(80_000)) },
		"pairs": func(n func(int) int) string {
			names := func(p string) string { return list(n(1_000), func(i int) string { return fmt.Sprint(p, i) }) }
			return names("a") + " -> " + names("b")
		},
		"quotes": func(n func(int) int) string { return strings.Repeat("\"[(`", n(200_000)) },
	} {
		body := func(n func(int) int) string { return `{"text": ` + quote(plan(n)) + `}` }
		rest("plan/"+name+"/parse", "/v1/plans:parse", body, "OK")
		rest("plan/"+name+"/compile", "/v1/plans:compile", body, "OK", "PLAN_INVALID", "NO_PLAN", "PLAN_TOO_LARGE")
	}

	// Signals.
	rest("signals/one run", "/v1/runs/{run}:signal", func(n func(int) int) string {
		return `{"name": "another", "payload": ` + quote(strings.Repeat("x", n(60_000))) + `}`
	}, "OK", "RUN_INBOX_FULL")
	rest("signals/with starts", "/v1/runs:signalWithStart", func(n func(int) int) string {
		return `{"name": "another", "payload": ` + quote(strings.Repeat("x", n(60_000))) + `, "start": {"businessKey": "soak", "graph": {"nodes": [{"id": "a", "actor": "signal", "named": {"name": "never", "timeout": "1s"}}]}}}`
	}, "OK", "RUN_INBOX_FULL")
	return out
}
