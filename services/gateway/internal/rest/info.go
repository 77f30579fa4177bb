package rest

import (
	"encoding/json"
	"net/http"

	"github.com/epigraph-run/epigraph/internal/access"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	"github.com/epigraph-run/epigraph/services/gateway/internal/oidc"
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
			// Namespaces are those in which a user has roles.
			Namespaces []string `json:"namespaces,omitempty"`
			Links      links    `json:"links"`
			doors
		}{s.Info.Version, grpckit.Namespace(r.Context()), exchangeOf(r.Context()).namespaces, links{s.Info.TraceURL, s.Info.LogsURL}, s.doors()})
		if err != nil {
			s.writeError(w, r, err)
			return
		}
		w.Header().Set("Content-Type", jsonType)
		_, _ = w.Write(body)
	})
	if len(s.Users.Offers()) > 0 {
		rt.guests = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, err := json.Marshal(s.doors())
			if err != nil {
				s.writeError(w, r, err)
				return
			}
			w.Header().Set("Content-Type", jsonType)
			w.Header().Set("Cache-Control", "no-store")
			_, _ = w.Write(body)
		})
	}
	return rt
}

// doors are how browsers log in and out.
type doors struct {
	Login  []oidc.Offer `json:"login,omitempty"`
	Logout string       `json:"logout,omitempty"`
}

func (s *Server) doors() doors {
	d := doors{Login: s.Users.Offers()}
	if len(d.Login) > 0 {
		d.Logout = oidc.LogoutPath
	}
	return d
}

// loginRoutes are those of browsers. They need no credentials: they are how a browser gets them.
func (s *Server) loginRoutes() []*route {
	answer := func(serve func(http.ResponseWriter, *http.Request) error) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if err := serve(w, r); err != nil {
				s.writeError(w, r, err)
			}
		})
	}
	var out []*route
	for _, one := range []struct {
		method, path string
		handler      http.Handler
	}{
		{http.MethodGet, oidc.LoginPath, answer(s.Users.Login)},
		{http.MethodPost, oidc.LogoutPath, answer(s.Users.Logout)},
		{http.MethodGet, oidc.CallbackPath, answer(func(w http.ResponseWriter, r *http.Request) error {
			who, err := s.Users.Callback(w, r)
			if err == nil {
				s.log.InfoContext(r.Context(), "a user has logged in", "user", who.Name, "remote", access.OriginOf(r.Context()).Remote)
			}
			return err
		})},
	} {
		rt := fileRoute(one.method, one.path)
		rt.open, rt.handler = true, one.handler
		out = append(out, rt)
	}
	return out
}
