package rest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/graphpb"
	"github.com/epigraph-run/epigraph/internal/inflight"
	"github.com/epigraph-run/epigraph/services/gateway/internal/jsonview"
)

// prepare checks a request against its gRPC method and turns it into the input of the generated handlers: a
// protojson body, and query parameters by their proto names. The handlers accept everything that it passes;
// it refuses the rest with a place, which they could not name. Its memory is taken from share first. others
// may add to the error of a body that makes sense without its faulty parts.
func (rt *route) prepare(w http.ResponseWriter, r *http.Request, limit int64, share *inflight.Share, others func(body []byte, err *errs.Error) error) (*http.Request, error) {
	if err := checkEncoding(r); err != nil {
		return nil, err
	}
	body, err := readBody(w, r, limit, share)
	if err != nil {
		return nil, err
	}
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, errs.New(errs.InvalidArgument, "INVALID_QUERY", "the query cannot be read: %v", err)
	}
	bodyMessage := rt.bodyMessage()
	switch {
	case len(body) == 0:
	case bodyMessage == nil:
		return nil, errs.New(errs.InvalidArgument, "BODY_NOT_EXPECTED", "%s %s takes no body", rt.method, rt.template).
			Hint("send the fields as query parameters")
	default:
		if err := checkContentType(r); err != nil {
			return nil, err
		}
	}
	sent := body
	if len(body) > 0 {
		body, err = jsonview.Decode(body, bodyMessage, func(n int64) error { return share.Queue(r.Context(), n) })
		if e, ok := errors.AsType[*errs.Error](err); ok && body != nil {
			return nil, others(body, e)
		}
		if err != nil {
			return nil, err
		}
	}
	query, err = rt.checkQuery(query)
	if err != nil {
		return nil, err
	}
	if mask := rt.maskField(); mask != nil && !query.Has(string(mask.Name())) {
		// What the path names is the resource, and the etag is a condition; neither is a change.
		paths := slices.DeleteFunc(jsonview.Populated(sent, bodyMessage), func(p string) bool {
			return p == "etag" || slices.Contains(rt.bound, rt.body+"."+p)
		})
		if len(paths) > 0 {
			query.Set(string(mask.Name()), strings.Join(paths, ","))
		}
	}
	out := r.Clone(r.Context())
	out.URL.RawQuery = query.Encode()
	out.Body = io.NopCloser(bytes.NewReader(body))
	out.ContentLength = int64(len(body))
	out.Form, out.PostForm = nil, nil
	// The gateway sets all headers for the services itself.
	for name := range out.Header {
		switch {
		case name == "Authorization", name == "X-Api-Key", name == "Cookie", name == "Te", strings.HasPrefix(name, "Grpc-"):
			out.Header.Del(name)
		}
	}
	out.Header.Set("Content-Type", jsonType)
	return out, nil
}

// checkEncoding refuses a body that is not as it was written.
func checkEncoding(r *http.Request) error {
	if enc := r.Header.Get("Content-Encoding"); enc != "" && enc != "identity" {
		return errs.New(errs.InvalidArgument, reasonMediaType, "a body in Content-Encoding %.40q is not read here", enc).
			Hint("send the body uncompressed")
	}
	return nil
}

// bodyMemory is how often the bytes of a body are there at once: as they came, as protojson, in the reader of
// that, and as a message on its way to a service.
const bodyMemory = 4

// readBody reads a body of at most limit bytes. The host gives it a deadline.
func readBody(w http.ResponseWriter, r *http.Request, limit int64, share *inflight.Share) ([]byte, error) {
	if r.Body == nil || r.Body == http.NoBody || r.ContentLength == 0 {
		return nil, nil
	}
	if r.ContentLength > limit {
		return nil, tooLarge(limit)
	}
	in := &takingReader{ctx: r.Context(), r: http.MaxBytesReader(w, r.Body, limit), share: share}
	var buf bytes.Buffer
	if r.ContentLength > 0 {
		in.taken = r.ContentLength
		if err := share.Queue(r.Context(), bodyMemory*r.ContentLength); err != nil {
			return nil, err
		}
		buf.Grow(int(min(r.ContentLength, 1<<20)))
	}
	_, err := buf.ReadFrom(in)
	if err == nil {
		exchangeOf(r.Context()).bodyRead = true
		return buf.Bytes(), nil
	}
	if _, ok := errors.AsType[*errs.Error](err); ok {
		return nil, err
	}
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, tooLarge(limit)
	}
	if te, ok := errors.AsType[interface {
		error
		Timeout() bool
	}](err); ok && te.Timeout() {
		return nil, errs.New(errs.InvalidArgument, reasonBodyTimeout, "the body did not arrive in time")
	}
	return nil, errs.New(errs.InvalidArgument, "BODY_UNREADABLE", "the body could not be read to its end").With(err)
}

// takingReader takes memory for what it reads, in steps, if its length was not known before. It waits for
// room as a body with a length does.
type takingReader struct {
	ctx   context.Context //nolint:containedctx // the context of the request whose body it reads; readers get none
	r     io.Reader
	share *inflight.Share
	read  int64
	taken int64
}

func (t *takingReader) Read(p []byte) (int, error) {
	n, err := t.r.Read(p)
	if t.read += int64(n); t.read > t.taken {
		if err := t.take(max(t.taken, 64<<10)); err != nil {
			return n, err
		}
	}
	return n, err
}

func (t *takingReader) take(n int64) error {
	t.taken += n
	return t.share.Queue(t.ctx, bodyMemory*n)
}

func tooLarge(limit int64) error {
	return errs.New(errs.ResourceExhausted, reasonBodyTooLarge, "the body is larger than %d bytes", limit).
		Hint("send large documents by reference, or use the gRPC API").Set("limit_bytes", fmt.Sprint(limit))
}

func checkContentType(r *http.Request) error {
	const hint = "send JSON with the header Content-Type: application/json"
	ct := r.Header.Get("Content-Type")
	if ct == "" {
		return errs.New(errs.InvalidArgument, reasonMediaType, "the body has no Content-Type").Hint(hint)
	}
	media, params, err := mime.ParseMediaType(ct)
	if err != nil || media != jsonType && !(strings.HasPrefix(media, "application/") && strings.HasSuffix(media, "+json")) {
		return errs.New(errs.InvalidArgument, reasonMediaType, "a body of type %q is not read here", ct).Hint(hint)
	}
	if c := params["charset"]; c != "" && !strings.EqualFold(c, "utf-8") {
		return errs.New(errs.InvalidArgument, reasonMediaType, "JSON is read as UTF-8, not as %q", c).Hint(hint)
	}
	return nil
}

// bodyMessage is what the body describes, or nil when there is to be none.
func (rt *route) bodyMessage() protoreflect.MessageDescriptor {
	switch rt.body {
	case "":
		return nil
	case "*":
		return rt.rpc.Input()
	default:
		return rt.rpc.Input().Fields().ByName(protoreflect.Name(rt.body)).Message()
	}
}

// maskField is the field mask of an update, or nil.
func (rt *route) maskField() protoreflect.FieldDescriptor {
	if rt.method != http.MethodPatch {
		return nil
	}
	fd := rt.rpc.Input().Fields().ByName("update_mask")
	if fd == nil || fd.Message() == nil || fd.Message().FullName() != "google.protobuf.FieldMask" {
		return nil
	}
	return fd
}

// checkQuery refuses parameters that the method does not have, all at once, and names the others as
// the proto does.
func (rt *route) checkQuery(query url.Values) (url.Values, error) {
	out := make(url.Values, len(query))
	var faults []errs.Violation
	hint := ""
	for _, key := range slices.Sorted(maps.Keys(query)) {
		name, problem, advice := rt.checkParameter(key, query[key], out)
		if problem.Message == "" {
			continue
		}
		problem.Field = name
		faults = append(faults, problem)
		if hint == "" {
			hint = advice
		}
	}
	if len(faults) == 0 {
		return out, nil
	}
	reason := faults[0].Reason
	for _, f := range faults {
		if f.Reason != reason {
			reason = "INVALID_QUERY"
		}
	}
	e := errs.New(errs.InvalidArgument, reason, "%s", "query parameter "+faults[0].Field+": "+faults[0].Message)
	e.Violations = faults
	if hint != "" {
		e = e.Hint(hint)
	}
	return nil, e
}

func (rt *route) checkParameter(key string, values []string, out url.Values) (name string, problem errs.Violation, hint string) {
	bad := func(reason, format string, args ...any) errs.Violation {
		return errs.Violation{Reason: reason, Message: fmt.Sprintf(format, args...)}
	}
	if !utf8.ValidString(key) || slices.ContainsFunc(values, func(v string) bool { return !utf8.ValidString(v) }) {
		return key, bad(jsonview.ReasonWrongType, "the text is not valid UTF-8"), "write every byte of its UTF-8 as %XX"
	}
	if rt.body == "*" {
		return key, bad(jsonview.ReasonUnknownField, "%s %s takes its fields from the body", rt.method, rt.template),
			"send the fields in the JSON body"
	}
	base, mapKey, isMap := strings.Cut(key, "[")
	fd, path := resolve(rt.rpc.Input(), base)
	inBody := rt.body != "" && (path == rt.body || strings.HasPrefix(path, rt.body+"."))
	if fd == nil || inBody || slices.Contains(rt.bound, path) {
		names := rt.parameters()
		if n := jsonview.Nearest(base, names); n != "" {
			return key, bad(jsonview.ReasonUnknownField, "there is no such parameter"), fmt.Sprintf("did you mean %q?", n)
		}
		if len(names) == 0 {
			return key, bad(jsonview.ReasonUnknownField, "there is no such parameter"), "there are none here"
		}
		return key, bad(jsonview.ReasonUnknownField, "there is no such parameter"), "there are " + strings.Join(names, ", ")
	}
	switch {
	case fd.IsMap():
		k, ok := strings.CutSuffix(mapKey, "]")
		if !isMap || !ok || k == "" || len(values) != 1 {
			return key, bad(jsonview.ReasonWrongType, "a map is filtered by one value per key"), fmt.Sprintf("write %s[key]=value", base)
		}
		if reason, text := jsonview.CheckText(fd.MapValue(), values[0]); text != "" {
			return key, bad(reason, "%s", text), ""
		}
		out[path+"["+k+"]"] = values
		return key, problem, ""
	case isMap:
		return key, bad(jsonview.ReasonWrongType, "%s is no map", base), ""
	case !fd.IsList() && len(values) > 1:
		return key, bad(jsonview.ReasonDuplicateKey, "the parameter is given %d times", len(values)), ""
	case fd.Message() != nil && fd.Message().FullName() == "google.protobuf.FieldMask":
		paths, unknown, advice := rt.maskPaths(values[0])
		if unknown != "" {
			return key, bad(jsonview.ReasonUnknownField, "%q is no field of %s", unknown, rt.bodyMessage().Name()), advice
		}
		if paths != "" {
			out.Set(path, paths)
		}
		return key, problem, ""
	case fd.Message() != nil && fd.Message().ParentFile().Package() != "google.protobuf":
		return key, bad(jsonview.ReasonWrongType, "a message cannot be a query parameter"), ""
	}
	for _, v := range values {
		if reason, text := jsonview.CheckText(fd, v); text != "" {
			text, advice, _ := strings.Cut(text, "; ")
			return key, bad(reason, "%s", text), advice
		}
	}
	for _, v := range values {
		if ed := fd.Enum(); ed != nil {
			if named := graphpb.EnumValue(ed, v); named != nil { // the reader behind takes names in full only
				v = string(named.Name())
			}
		}
		out[path] = append(out[path], v)
	}
	if !fd.IsList() && len(out[path]) > 1 {
		return key, bad(jsonview.ReasonDuplicateKey, "the parameter is given under two spellings"), ""
	}
	return key, problem, ""
}

// maskPaths reads "title,budgetTokens" as "title,budget_tokens".
func (rt *route) maskPaths(value string) (paths, unknown, hint string) {
	md := rt.bodyMessage()
	var out []string
	for p := range strings.SplitSeq(value, ",") {
		p = strings.TrimSpace(p)
		switch {
		case p == "":
			continue
		case p == "*" || md == nil:
			out = append(out, p)
			continue
		}
		fd, path := resolve(md, p)
		if fd == nil {
			var names []string
			for i := range md.Fields().Len() {
				names = append(names, string(md.Fields().Get(i).Name()))
			}
			if n := jsonview.Nearest(p, names); n != "" {
				return "", p, fmt.Sprintf("did you mean %q?", n)
			}
			return "", p, "there are " + strings.Join(names, ", ")
		}
		out = append(out, path)
	}
	return strings.Join(out, ","), "", ""
}

// resolve follows a path of proto or JSON names and returns the field at its end and its proto path.
func resolve(md protoreflect.MessageDescriptor, dotted string) (protoreflect.FieldDescriptor, string) {
	var fd protoreflect.FieldDescriptor
	var path []string
	for name := range strings.SplitSeq(dotted, ".") {
		if md == nil {
			return nil, ""
		}
		if fd = md.Fields().ByName(protoreflect.Name(name)); fd == nil {
			if fd = md.Fields().ByJSONName(name); fd == nil {
				return nil, ""
			}
		}
		path = append(path, string(fd.Name()))
		md = nil
		if !fd.IsList() && !fd.IsMap() {
			md = fd.Message()
		}
	}
	return fd, strings.Join(path, ".")
}

// parameters lists what a query may name.
func (rt *route) parameters() []string {
	var names []string
	fields := rt.rpc.Input().Fields()
	for i := range fields.Len() {
		n := string(fields.Get(i).Name())
		bound := slices.ContainsFunc(rt.bound, func(b string) bool { return b == n || strings.HasPrefix(b, n+".") })
		if n != rt.body && !bound {
			names = append(names, n)
		}
	}
	return names
}
