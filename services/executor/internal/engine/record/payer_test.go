package record_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/services/executor/internal/engine/record"
	"github.com/epigraph-run/epigraph/workgraph"
)

func TestPayerThen(t *testing.T) {
	t.Parallel()
	inline := &record.Payer{Epic: "ep_1", Task: "tk_1"}
	for name, c := range map[string]struct {
		was  *record.Payer
		said workgraph.Payer
		want *record.Payer
	}{
		"AnEpicIsSteered":                   {nil, workgraph.Payer{EpicID: "ep_1"}, &record.Payer{Epic: "ep_1"}},
		"AnotherEpicTakesItsPlace":          {&record.Payer{Epic: "ep_1"}, workgraph.Payer{EpicID: "ep_2"}, &record.Payer{Epic: "ep_2"}},
		"ATaskIsBegun":                      {&record.Payer{Epic: "ep_1"}, workgraph.Payer{EpicID: "ep_1", TaskID: "tk_1"}, inline},
		"TheNextTaskTakesItsPlace":          {inline, workgraph.Payer{EpicID: "ep_2", TaskID: "tk_2"}, &record.Payer{Epic: "ep_2", Task: "tk_2"}},
		"ATaskIsDone":                       {inline, workgraph.Payer{EpicID: "ep_1", TaskID: "tk_1", Done: true}, &record.Payer{Epic: "ep_1"}},
		"AnotherTaskIsDoneMeanwhile":        {inline, workgraph.Payer{EpicID: "ep_2", TaskID: "tk_2", Done: true}, inline},
		"AnEpicIsChangedMeanwhile":          {inline, workgraph.Payer{EpicID: "ep_2"}, inline},
		"ATaskThatWasNeverBegunIsDone":      {nil, workgraph.Payer{EpicID: "ep_1", TaskID: "tk_1", Done: true}, &record.Payer{Epic: "ep_1"}},
		"TheEpicHasEnded":                   {&record.Payer{Epic: "ep_1"}, workgraph.Payer{EpicID: "ep_1", Done: true}, nil},
		"TheEpicHasEndedWithItsTask":        {inline, workgraph.Payer{EpicID: "ep_1", Done: true}, nil},
		"AnotherEpicHasEnded":               {inline, workgraph.Payer{EpicID: "ep_2", Done: true}, inline},
		"NoEpicIsSteeredAndOneHasEnded":     {nil, workgraph.Payer{EpicID: "ep_1", Done: true}, nil},
		"AForeignTaskIsDoneWhileNoneIsDone": {&record.Payer{Epic: "ep_1"}, workgraph.Payer{EpicID: "ep_2", TaskID: "tk_2", Done: true}, &record.Payer{Epic: "ep_2"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.want, c.was.Then(&c.said))
		})
	}
}
