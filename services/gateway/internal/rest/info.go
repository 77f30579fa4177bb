package rest

import (
	"encoding/json"
	"net/http"

	"github.com/epigraph-run/epigraph/internal/grpckit"
)

// Info is what clients are told of the server. The links are templates; an empty one is not set.
type Info struct {
	Version, TraceURL, LogsURL string
}

// infoRoute tells who may call what the server is.
func (s *Server) infoRoute() *route {
	rt := fileRoute(http.MethodGet, "/v1/info")
	rt.handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		type links struct {
			Trace string `json:"trace,omitempty"`
			Logs  string `json:"logs,omitempty"`
		}
		body, err := json.Marshal(struct {
			Version   string `json:"version"`
			Namespace string `json:"namespace"`
			Links     links  `json:"links"`
		}{s.Info.Version, grpckit.Namespace(r.Context()), links{s.Info.TraceURL, s.Info.LogsURL}})
		if err != nil {
			s.writeError(w, r, err)
			return
		}
		w.Header().Set("Content-Type", jsonType)
		_, _ = w.Write(body)
	})
	return rt
}
