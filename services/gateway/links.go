package gateway

import (
	"fmt"
	"net/url"
	"regexp"
	"slices"
)

// linkPlaces are what templates of links may name.
func linkPlaces() []string { return []string{"trace_id", "run_id", "namespace", "from", "to"} }

// validate reports templates that make no links to pages.
func (c Console) validate() (faults []error) {
	place := regexp.MustCompile(`\{([^{}]*)\}`)
	for _, s := range []struct{ name, template string }{{"console.trace_url", c.TraceURL}, {"console.logs_url", c.LogsURL}} {
		if s.template == "" {
			continue
		}
		for _, m := range place.FindAllStringSubmatch(s.template, -1) {
			if !slices.Contains(linkPlaces(), m[1]) {
				faults = append(faults, fmt.Errorf("%s: {%s} is not known; there are %v", s.name, m[1], linkPlaces()))
			}
		}
		// The server of a link is fixed: a value must not choose it.
		u, err := url.Parse(place.ReplaceAllString(s.template, "x"))
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
			faults = append(faults, fmt.Errorf("%s: %q is no address; write it as https://host/path/{trace_id}", s.name, s.template))
			continue
		}
		if host := regexp.MustCompile(`^https?://[^/?#]*`).FindString(s.template); place.MatchString(host) {
			faults = append(faults, fmt.Errorf("%s: %q has a place in the name of its host; write it behind the host", s.name, s.template))
		}
	}
	return faults
}
