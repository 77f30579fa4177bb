package worker

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/workgraph"
)

// level is a number that is written as a word.
type level int

func (l *level) UnmarshalText(b []byte) error {
	_, err := fmt.Sscanf(string(b), "level-%d", (*int)(l))
	return err
}

// either takes a text or a number.
type either struct{ Text string }

func (e *either) UnmarshalJSON(b []byte) error {
	e.Text = string(b)
	return nil
}

func TestSchemaOf(t *testing.T) {
	const anything = `["null","boolean","number","string","array","object"]`
	for name, c := range map[string]struct {
		schema func() (json.RawMessage, error)
		want   string // the type of the argument x
	}{
		"Number": {schemaOf[struct {
			X int `json:"x"`
		}], `"integer"`},
		"RawJSON": {schemaOf[struct {
			X json.RawMessage `json:"x"`
		}], anything},
		"RawJSON/Pointer": {schemaOf[struct {
			X *json.RawMessage `json:"x"`
		}], anything},
		"Bytes": {schemaOf[struct {
			X []byte `json:"x"`
		}], `["null","string"]`},
		"Time": {schemaOf[struct {
			X time.Time `json:"x"`
		}], `"string"`},
		"ReadsItself": {schemaOf[struct {
			X either `json:"x"`
		}], anything},
		"ReadsItself/Nil": {schemaOf[struct {
			X *either `json:"x"`
		}], anything},
		"ReadsText": {schemaOf[struct {
			X level `json:"x"`
		}], `"string"`},
		"ReadsText/Nil": {schemaOf[struct {
			X *netip.Addr `json:"x"`
		}], `["null","string"]`},
		"Graph": {schemaOf[struct {
			X *workgraph.Graph `json:"x"`
		}], `["null","object"]`},
		"OfATypeThatIsNamed": {schemaOf[struct {
			X map[string]level `json:"x"`
		}], `"object"`},
	} {
		t.Run(name, func(t *testing.T) {
			raw, err := c.schema()
			require.NoError(t, err)
			var s struct {
				Properties map[string]struct{ Type json.RawMessage }
			}
			require.NoError(t, json.Unmarshal(raw, &s))
			require.Equal(t, c.want, string(s.Properties["x"].Type), "%s", raw)
		})
	}
	t.Run("Within", func(t *testing.T) {
		raw, err := schemaOf[struct {
			List []struct {
				V json.RawMessage `json:"v"`
			} `json:"list"`
		}]()
		require.NoError(t, err)
		require.Contains(t, string(raw), `"v":{"type":`+anything)
	})
	t.Run("ReadsItselfAsAWhole", func(t *testing.T) {
		raw, err := schemaOf[either]()
		require.NoError(t, err)
		require.JSONEq(t, `{"type":"object"}`, string(raw))
	})
}
