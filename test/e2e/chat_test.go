package e2e_test

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/llm/fakellm"
)

// TestConversation is a conversation of ten turns with an agent of `epigraph dev`. The process is killed
// after the third and after the seventh turn. The conversation is forked after the fifth, and both go on.
// Each prompt has the history of its own branch.
func TestConversation(t *testing.T) {
	t.Parallel()
	bin, err := binary()
	require.NoError(t, err)
	model := fakellm.New(fakellm.Script{Answer: func(r fakellm.Request) (fakellm.Reply, bool) {
		prompt := r.Messages[len(r.Messages)-1].Content
		return fakellm.Reply{Text: "re: " + prompt[strings.LastIndex(prompt, "User: ")+len("User: "):]}, true
	}})
	modelURL, err := model.Listen("127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, model.Close()) })
	agents, err := json.Marshal(map[string]any{"guide": map[string]any{
		"definition": `{"template": "{conversation}", "actions": {"none": {"actor": "cel", "named": {"expr": "0"}}}}`}})
	require.NoError(t, err)
	dir := t.TempDir()
	var shell []string
	live := func() *process {
		cmd := exec.Command(bin, "dev", "--data="+filepath.Join(dir, "data"), "--http=127.0.0.1:0", "--grpc=127.0.0.1:0")
		cmd.Env = []string{"HOME=" + dir, "OPENAI_API_KEY=unused", "OPENAI_BASE_URL=" + modelURL, "EPIGRAPH_EXECUTOR_ACTORS_AGENTS=" + string(agents)}
		p := launch(t, cmd)
		t.Cleanup(p.kill)
		devReady(t, p)
		shell = append(shellEnv(t, bin), "EPIGRAPH_ADDR="+regexp.MustCompile(`gRPC\D+(127\.0\.0\.1:\d+)`).FindStringSubmatch(p.output())[1])
		return p
	}
	var prompts []string // that the turns must have, in order
	// chat says some lines and checks the answers. history is what was said before on the branch.
	chat := func(with string, history, lines []string) (thread string, said []string) {
		t.Helper()
		out := script(t, dir, shell, "printf '%s\\n' '"+strings.Join(lines, "' '")+"' | epigraph chat "+with+" --json")
		dec := json.NewDecoder(strings.NewReader(out))
		history = slices.Clone(history) // another branch goes on from it, too
		for _, line := range lines {
			var reply struct {
				ThreadID string `json:"threadId"`
				Answer   string `json:"answer"`
			}
			require.NoError(t, dec.Decode(&reply), out)
			require.Equal(t, "re: "+line, reply.Answer)
			thread = reply.ThreadID
			prompts = append(prompts, strings.Join(slices.Concat(history, []string{"User: " + line}), "\n"))
			history = append(history, "User: "+line, "Agent: re: "+line)
		}
		return thread, history
	}

	p := live()
	thread, history := chat("agent/guide", nil, []string{"one", "two", "three"})
	p.kill()
	p = live()
	_, fifth := chat("--thread "+thread, history, []string{"four", "five"})
	_, history = chat("--thread "+thread, fifth, []string{"six", "seven"})
	p.kill()
	live()
	// The fifth turn ends with the fifth state.
	out := script(t, dir, shell, "epigraph threads fork "+thread+" --at $(epigraph threads show "+thread+" | awk '/ state: /{n++} n == 5 {print $1; exit}') --title 'What if' --json")
	var fork struct {
		ID, ParentID string
	}
	require.NoError(t, json.Unmarshal([]byte(out), &fork), out)
	require.Equal(t, thread, fork.ParentID)
	_, other := chat("--thread "+fork.ID, fifth, []string{"other six", "other seven"})
	_, history = chat("--thread "+thread, history, []string{"eight", "nine", "ten"})

	var got []string
	for _, r := range model.Requests() {
		got = append(got, r.Messages[len(r.Messages)-1].Content)
	}
	require.Equal(t, prompts, got, "each turn asked the model once, with the history of its branch")
	for id, want := range map[string][]string{thread: history, fork.ID: other} {
		var shown []string
		for _, m := range regexp.MustCompile(`(?m)  (?:user|agent): (.*)$`).FindAllStringSubmatch(script(t, dir, shell, "epigraph threads show --limit 100 "+id), -1) {
			shown = append(shown, m[1])
		}
		require.Len(t, shown, len(want))
		for i, line := range want {
			require.Equal(t, line[strings.Index(line, ": ")+2:], shown[i], fmt.Sprint(i))
		}
	}
}
