package oidc

import (
	"net/http"
	"time"

	"github.com/epigraph-run/epigraph/internal/errs"
)

// session is what a browser holds after a login. The roles are not in it: they come from the
// configuration of now.
type session struct {
	Issuer    string   `json:"i"`
	Name      string   `json:"u"`
	Groups    []string `json:"g,omitempty"`
	Namespace string   `json:"n"`
	// Began is when the login was, and Seen about when the last request was, in seconds since 1970.
	Began int64 `json:"b"`
	Seen  int64 `json:"s"`
}

// The uses of sealed values.
const (
	forSession = "session"
	forLogin   = "login"
)

// ReasonEnded refuses a session that ended, or that is none.
const ReasonEnded = "SESSION_ENDED"

// name is that of a cookie. The prefix has browsers refuse one that another host set, or that came
// without encryption.
func (u *Users) name(use string) string {
	if u.secure {
		return "__Host-epigraph_" + use
	}
	return "epigraph_" + use
}

func (u *Users) cookie(use, value string, lasts time.Duration) *http.Cookie {
	c := &http.Cookie{Name: u.name(use), Value: value, Path: "/", HttpOnly: true, Secure: u.secure, SameSite: http.SameSiteLaxMode, MaxAge: int(lasts / time.Second)}
	if value == "" {
		c.MaxAge = -1
	}
	return c
}

// Cookie is the session that a request shows, or "". Two of them are none: one was set by somebody
// else.
func (u *Users) Cookie(r *http.Request) string {
	if u == nil || u.seals == nil {
		return ""
	}
	if found := r.CookiesNamed(u.name(forSession)); len(found) == 1 {
		return found[0].Value
	}
	return ""
}

// Session returns whose session a request shows. renewed is the cookie to answer with, if a quarter
// of the idle time has passed, or the session is to be forgotten. A request that may change
// something must come from a page of the gateway itself.
func (u *Users) Session(r *http.Request, text string) (who User, renewed *http.Cookie, err error) {
	if err := u.origins.Check(r); err != nil {
		return User{}, nil, errs.New(errs.PermissionDenied, "CROSS_ORIGIN", "with the session of a browser only pages of this server may change anything").
			Hint("send an API key or a token from other pages").With(err)
	}
	ended := func() (User, *http.Cookie, error) {
		return User{}, u.cookie(forSession, "", 0), errs.New(errs.Unauthenticated, ReasonEnded, "the session of this browser has ended").
			Hint("log in again at " + LoginPath)
	}
	var s session
	if u.seals.open(forSession, text, &s) != nil {
		return ended()
	}
	now := time.Now()
	began, seen := time.Unix(s.Began, 0), time.Unix(s.Seen, 0)
	end := began.Add(u.cfg.SessionLifetime)
	if !now.Before(end) || !now.Before(seen.Add(u.cfg.SessionIdle)) || now.Add(skew).Before(seen) {
		return ended()
	}
	for _, p := range u.providers {
		if p.issuer.URL != s.Issuer {
			continue
		}
		if who, err = p.issuer.user(s.Name, s.Groups); err != nil {
			return User{}, nil, err
		}
		who.Chosen = s.Namespace
		if now.Sub(seen) >= u.cfg.SessionIdle/4 {
			s.Seen = now.Unix()
			if text, err := u.seals.seal(forSession, s); err == nil {
				renewed = u.cookie(forSession, text, min(u.cfg.SessionIdle, end.Sub(now)))
			}
		}
		return who, renewed, nil
	}
	return ended()
}
