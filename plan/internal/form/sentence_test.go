package form

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSentences(t *testing.T) {
	tests := map[string]struct {
		text string
		want []string
	}{
		"Plain":         {"Dig it. Fill it! Done?", []string{"Dig it.", "Fill it!", "Done?"}},
		"Abbreviations": {"Ask Dr. Moe, e.g. today. See no. 3 first.", []string{"Ask Dr. Moe, e.g. today.", "See no. 3 first."}},
		"Ordinals":      {"Der 3. Schritt folgt. Dann 2. Und mehr.", []string{"Der 3. Schritt folgt.", "Dann 2.", "Und mehr."}},
		"Turkish":       {"4. adım 3'e bağlı. Bitti.", []string{"4. adım 3'e bağlı.", "Bitti."}},
		"Han":           {"先做第4步。再做第3步!好", []string{"先做第4步。", "再做第3步!好"}},
		"Danda":         {"पहले यह। फिर वह।", []string{"पहले यह।", "फिर वह।"}},
		"Lines":         {"Short line\n- one\n- two", []string{"Short line", "- one", "- two"}},
		"Wrapped":       {"This line is long enough to have been wrapped by somebody\nwho writes mail.", []string{"This line is long enough to have been wrapped by somebody\nwho writes mail."}},
		"Initials":      {"Ask H. Brandt now.", []string{"Ask H. Brandt now."}},
	}
	for name, c := range tests {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, s := range Sentences(c.text, 0) {
				got = append(got, s.Text)
			}
			require.Equal(t, c.want, got)
		})
	}
	t.Run("Clauses", func(t *testing.T) {
		s := Sentences("x. First dig, then fill (2,5 m); rest", 10)[1]
		var got []string
		for _, c := range s.Clauses {
			got = append(got, strings.Trim(string(c.Sep), "\x00")+c.Text)
		}
		require.Equal(t, []string{"First dig", ",then fill", "(2,5 m", ";rest"}, got)
		require.Equal(t, 13, s.Clauses[0].Off)
	})
}

func FuzzSentences(f *testing.F) {
	f.Add("Dig, e.g. 3. Schritt (x); then。")
	f.Fuzz(func(t *testing.T, text string) {
		end := 0
		for _, s := range Sentences(text, 0) {
			if s.Off < end || !strings.HasPrefix(text[s.Off:], s.Text) {
				t.Fatalf("a sentence is not where it says: %q", s.Text)
			}
			for _, c := range s.Clauses {
				if !strings.HasPrefix(text[c.Off:], c.Text) {
					t.Fatalf("a clause is not where it says: %q", c.Text)
				}
			}
			end = s.Off + len(s.Text)
		}
	})
}
