package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/cmd/epigraph/internal/cli"
	"github.com/epigraph-run/epigraph/internal/llm/fakellm"
	"github.com/epigraph-run/epigraph/internal/testkit"
)

// deliveriesOf is the part of a list of deliveries that the tests look at.
type deliveriesOf struct {
	Deliveries []struct {
		ID       string `json:"id"`
		State    string `json:"state"`
		RunID    string `json:"runId"`
		EventID  string `json:"eventId"`
		RepeatOf string `json:"repeatOf"`
	} `json:"deliveries"`
}

// TestTriggers turns triggers on and sees what comes of them, on a whole server.
func TestTriggers(t *testing.T) {
	d := serve(t, fakellm.Script{})
	command := func(t *testing.T, want int, args ...string) (out, notes string) {
		t.Helper()
		var o, e bytes.Buffer
		code := cli.Main(t.Context(), build, append([]string{"--addr", d.GRPCAddr()}, args...), cli.IO{In: strings.NewReader(""), Out: &o, Err: &e})
		require.Equal(t, want, code, "%s%s", o.String(), e.String())
		return o.String(), e.String()
	}
	dir := t.TempDir()
	file := func(text string) string {
		name := filepath.Join(dir, "w.yaml")
		require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
		return name
	}
	// trigger is the id of the only active trigger of a workflow.
	trigger := func(t *testing.T, name string) string {
		t.Helper()
		var list struct {
			Triggers []struct{ ID, State string }
		}
		out, _ := command(t, 0, "triggers", "ls", "--workflow", name, "--json")
		require.NoError(t, json.Unmarshal([]byte(out), &list))
		var active []string
		for _, x := range list.Triggers {
			if x.State == "TRIGGER_STATE_ACTIVE" {
				active = append(active, x.ID)
			}
		}
		require.Len(t, active, 1)
		return active[0]
	}
	told := func(t *testing.T, id string, n int) deliveriesOf {
		t.Helper()
		var list deliveriesOf
		testkit.Eventually(t, func() bool {
			list = deliveriesOf{}
			out, _ := command(t, 0, "triggers", "deliveries", id, "--state", "started", "--json")
			require.NoError(t, json.Unmarshal([]byte(out), &list))
			return len(list.Deliveries) >= n
		})
		return list
	}
	result := func(t *testing.T, id string) string {
		t.Helper()
		out, _ := command(t, 0, "runs", "watch", id)
		return out
	}
	const steps = "steps: [{id: say, type: reply_chat, message: \"%\"}]\n"
	say := func(text string) string { return strings.Replace(steps, "%", text, 1) }

	t.Run("NothingActsByItself", func(t *testing.T) {
		command(t, 0, "workflows", "create", file("name: Quiet\ntrigger: {type: cron, every: 1s}\n"+say("tick")))
		out, _ := command(t, 0, "triggers", "ls", "--workflow", "quiet")
		require.Equal(t, "no triggers\n", out)
		out, _ = command(t, 0, "schedules", "ls")
		require.Equal(t, "no schedules\n", out)
		_, notes := command(t, 1, "triggers", "off", "quiet")
		require.Contains(t, notes, "not active")
	})
	t.Run("Clock", func(t *testing.T) {
		out, _ := command(t, 0, "workflows", "create", file("name: Tick\ninputs: {at: {type: string}}\ntrigger: {type: cron, every: 1s, overlap: allow, inputs: {at: \"{{ event.time }}\"}}\n"+say("it is {{ inputs.at }}")), "--activate")
		require.Contains(t, out, "triggers of tick are active at version 1")
		id := trigger(t, "tick")
		x := told(t, id, 2).Deliveries[0]
		require.Contains(t, result(t, x.RunID), "it is "+x.EventID)
		out, _ = command(t, 0, "schedules", "ls")
		require.Contains(t, out, id)
		_, notes := command(t, 1, "schedules", "delete", id)
		require.Contains(t, notes, "epigraph triggers off")
		command(t, 0, "triggers", "off", "tick")
		out, _ = command(t, 0, "schedules", "ls")
		require.Equal(t, "no schedules\n", out)
	})
	t.Run("CreatedAndTurnedOnIsOneDocument", func(t *testing.T) {
		out, _ := command(t, 0, "--json", "workflows", "create", file("name: Both\ntrigger: {type: webhook, signature: token}\n"+say("hi")), "--activate")
		var got struct {
			Created    struct{ Slug string }
			Activation struct{ Triggers []struct{ Secret string } }
		}
		require.NoError(t, json.Unmarshal([]byte(out), &got), out)
		require.Equal(t, "both", got.Created.Slug)
		require.NotEmpty(t, got.Activation.Triggers[0].Secret)
	})
	t.Run("EndsErrorsAndRepeats", func(t *testing.T) {
		command(t, 0, "workflows", "create", file("name: First\ninputs: {n: {type: integer}}\n"+say("{{ inputs.n }}")))
		command(t, 0, "workflows", "create", file("name: Then\ntrigger: {type: workflow, workflow: first, inputs: {was: \"{{ event.result }}\"}}\ninputs: {was: {}}\n"+say("it was {{ inputs.was }}")), "--activate")
		command(t, 0, "workflows", "create", file("name: Alarm\ntrigger: {type: error, inputs: {of: \"{{ event.workflow }}\"}}\ninputs: {of: {type: string}}\n"+say("{{ inputs.of }} has failed")), "--activate")
		command(t, 0, "workflows", "run", "first", "--input", "n=7")
		command(t, 0, "schedules", "create", "many", "--workflow", "first", "--cron", "@yearly", "--input", "n=many")
		command(t, 0, "schedules", "trigger", "many") // its run fails at its inputs; a start is refused
		then := told(t, trigger(t, "then"), 1)
		require.Len(t, then.Deliveries, 1, "a run that failed did not complete")
		require.Contains(t, result(t, then.Deliveries[0].RunID), "it was 7")
		require.Contains(t, result(t, told(t, trigger(t, "alarm"), 1).Deliveries[0].RunID), "first has failed")
		out, _ := command(t, 0, "triggers", "repeat", then.Deliveries[0].ID)
		again := told(t, trigger(t, "then"), 2).Deliveries[0]
		require.Equal(t, strings.TrimSpace(out), again.ID)
		require.Equal(t, then.Deliveries[0].ID, again.RepeatOf)
		require.Contains(t, result(t, again.RunID), "it was 7")
		out, _ = command(t, 0, "triggers", "show", again.ID)
		require.Contains(t, out, `"outcome":"completed"`)
	})
	t.Run("ANewVersionIsFollowed", func(t *testing.T) {
		command(t, 0, "workflows", "create", file("name: Then\ntrigger: {type: workflow, id: workflow_1, workflow: first, on: ended}\n"+say("version 2")), "--as", "then", "--activate")
		id := trigger(t, "then")
		command(t, 0, "workflows", "run", "first", "--input", "n=8")
		require.Contains(t, result(t, told(t, id, 3).Deliveries[0].RunID), "version 2")
	})
}
