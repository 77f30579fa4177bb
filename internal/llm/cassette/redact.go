package cassette

import (
	"encoding/json"
	"regexp"
	"strings"
)

const hidden = "[redacted]"

// minSecret is the length from which a configured secret is looked for: a shorter one is part of many words.
const minSecret = 16

// keys are forms of credentials, within JSON: none of them goes beyond the end of a text.
var keys = regexp.MustCompile(strings.Join([]string{
	`sk-[A-Za-z0-9_-]{16,}`,                                      // OpenAI, Anthropic and others
	`AIza[A-Za-z0-9_-]{30,}`,                                     // Google
	`gh[pousr]_[A-Za-z0-9]{30,}`,                                 // GitHub
	`xox[abprs]-[A-Za-z0-9-]{10,}`,                               // Slack
	`(?:AKIA|ASIA)[A-Z0-9]{16}`,                                  // AWS
	`(?i:bearer) +[A-Za-z0-9._~+/-]{16,}=*`,                      // any
	`eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}`, // JWT
	`-----BEGIN [A-Z ]*PRIVATE KEY-----[^"]*?-----END [A-Z ]*PRIVATE KEY-----`,
}, "|"))

// redactor hides secrets in JSON.
type redactor struct{ known *strings.Replacer }

func newRedactor(secrets []string) *redactor {
	var pairs []string
	for _, s := range secrets {
		quoted, err := json.Marshal(s)
		if len(s) >= minSecret && err == nil {
			pairs = append(pairs, string(quoted[1:len(quoted)-1]), hidden)
		}
	}
	return &redactor{known: strings.NewReplacer(pairs...)}
}

// json hides secrets in a JSON document, which stays one. Doing it twice changes nothing.
func (r *redactor) json(doc []byte) []byte {
	return keys.ReplaceAll([]byte(r.known.Replace(string(doc))), []byte(hidden))
}
