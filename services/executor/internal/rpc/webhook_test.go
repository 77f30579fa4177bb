package rpc

import (
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
)

func TestKeepSecrets(t *testing.T) {
	t.Parallel()
	const ended, paused = executorv1.WebhookEvent_WEBHOOK_EVENT_RUN_ENDED, executorv1.WebhookEvent_WEBHOOK_EVENT_RUN_PAUSED
	hook := func(url, secret string, events ...executorv1.WebhookEvent) *executorv1.Webhook {
		return &executorv1.Webhook{Url: url, Secret: secret, Events: events}
	}
	for name, c := range map[string]struct {
		old, now []*executorv1.Webhook
		want     []string
	}{
		"OneAddressTwice":   {[]*executorv1.Webhook{hook("a", "1", ended), hook("a", "2", paused)}, []*executorv1.Webhook{hook("a", "", ended), hook("a", "", paused)}, []string{"1", "2"}},
		"TurnedRound":       {[]*executorv1.Webhook{hook("a", "1", ended), hook("a", "2", paused)}, []*executorv1.Webhook{hook("a", "", paused), hook("a", "", ended)}, []string{"2", "1"}},
		"FirstTakenOut":     {[]*executorv1.Webhook{hook("a", "1", ended), hook("a", "2", paused)}, []*executorv1.Webhook{hook("a", "", paused)}, []string{"2"}},
		"OtherEvents":       {[]*executorv1.Webhook{hook("a", "1", ended)}, []*executorv1.Webhook{hook("a", "", paused)}, []string{"1"}},
		"OneMore":           {[]*executorv1.Webhook{hook("a", "1", ended)}, []*executorv1.Webhook{hook("a", "", ended), hook("a", "", ended)}, []string{"1", ""}},
		"OneHadNone":        {[]*executorv1.Webhook{hook("a", "", ended), hook("a", "2", paused)}, []*executorv1.Webhook{hook("a", "", ended), hook("a", "", paused)}, []string{"", "2"}},
		"AnotherAddress":    {[]*executorv1.Webhook{hook("a", "1", ended)}, []*executorv1.Webhook{hook("b", "", ended)}, []string{""}},
		"GivenAnew":         {[]*executorv1.Webhook{hook("a", "1", ended)}, []*executorv1.Webhook{hook("a", "3", ended)}, []string{"3"}},
		"OneOfTwoGivenAnew": {[]*executorv1.Webhook{hook("a", "1", ended), hook("a", "2", paused)}, []*executorv1.Webhook{hook("a", "3", ended), hook("a", "", paused)}, []string{"3", "2"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			earlier, err := proto.Marshal(&executorv1.StartRunRequest{Webhooks: c.old})
			require.NoError(t, err)
			now := &executorv1.StartRunRequest{Webhooks: c.now}
			_, err = keepSecrets(now, earlier)
			require.NoError(t, err)
			var got []string
			for _, m := range now.GetWebhooks() {
				got = append(got, m.GetSecret())
			}
			require.Equal(t, c.want, got)
		})
	}
}
