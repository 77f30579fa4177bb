package live

import (
	"context"
	"net/http"

	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
)

// Export serves GET /v1/memory:export: each entry as a line of JSON. A line with an error is the last one of
// an export that is not whole.
func Export(o Options, registry registryv1.MemoryServiceClient, w http.ResponseWriter, r *http.Request) {
	s := &exportStream{connection: newConnection(o, w, r)}
	s.content, s.silence, s.again = lines, "", "ask again; an export begins anew"
	err := serve(&s.connection, s, func(ctx context.Context) (interface {
		Recv() (*registryv1.Memory, error)
	}, error,
	) {
		return registry.ExportMemory(ctx, &registryv1.ExportMemoryRequest{})
	})
	if err != nil {
		o.Log.InfoContext(r.Context(), "export cut off", "err", err)
	}
}

// lines is the content type of lines of JSON.
const lines = "application/x-ndjson"

// errorLine is an error as a line of JSON.
func errorLine(data []byte) []byte {
	return append(append([]byte(`{"error":`), data...), '}')
}

// exportStream writes entries of the memory.
type exportStream struct{ connection }

var _ writer[*registryv1.Memory] = (*exportStream)(nil)

func (s *exportStream) take(m *registryv1.Memory) (over bool, err error) {
	data, err := s.Encode(m)
	if err != nil {
		return true, s.fail(err)
	}
	s.line(data)
	return false, nil
}

func (*exportStream) end() error { return nil }

func (s *exportStream) stop(cause error) error { return s.fail(cause) }

func (s *exportStream) fail(cause error) error {
	data, err := s.Encode(s.Describe(s.r, cause))
	if err == nil {
		s.line(errorLine(data))
	}
	return err
}

func (s *exportStream) line(data []byte) {
	s.buf.Write(data)
	s.buf.WriteByte('\n')
}
