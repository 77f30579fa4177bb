package flow

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"

	"github.com/epigraph-run/epigraph/workflow/internal/text"
	"github.com/epigraph-run/epigraph/workgraph"
)

// Reasons of failed calls about attempts.
const (
	// ReasonNoAttempt is the reason when all attempts have failed.
	ReasonNoAttempt = "NO_ATTEMPT"
	// ReasonNoChoice is the reason when what was chosen is no attempt that succeeded.
	ReasonNoChoice = "NO_CHOICE"
)

// maxBallot bounds the text with which a judge is told of all attempts, in bytes.
const maxBallot = 256 << 10

// attempt is an entry of the list that a map gives.
type attempt struct {
	OK    json.RawMessage `json:"ok"`
	Error *struct {
		Reason  string `json:"reason"`
		Message string `json:"message"`
	} `json:"error"`
}

// attemptsOf are the attempts that the node gave, of which one at least has succeeded.
func attemptsOf(c *workgraph.Call, node string) ([]attempt, workgraph.NodeResult, error) {
	from, ok := c.Ancestor(node)
	var list []attempt
	if !ok || json.Unmarshal(from.Result(), &list) != nil || len(list) == 0 {
		return nil, from, workgraph.Errorf(workgraph.Permanent, ReasonNoAttempt, "the node %q gave no attempts", node)
	}
	why := ""
	for i := range list {
		switch e := list[i].Error; {
		case list[i].OK != nil:
			return list, from, nil
		case why == "" && e != nil:
			why = ": " + e.Reason + ": " + text.Clip(e.Message, 500)
		}
	}
	return nil, from, workgraph.Errorf(workgraph.Permanent, ReasonNoAttempt, "none of %d attempts has succeeded%s", len(list), why)
}

// Ballot puts the attempts of the node `attempts` that succeeded before a judge: {count, numbers, text}. The
// numbers count from 1. Long attempts are cut, so that the text stays bounded.
func Ballot(_ context.Context, c *workgraph.Call) (workgraph.Outcome, error) {
	var a struct {
		Attempts string `json:"attempts"`
	}
	if err := own(c, &a); err != nil {
		return workgraph.Outcome{}, err
	}
	list, _, err := attemptsOf(c, a.Attempts)
	if err != nil {
		return workgraph.Outcome{}, err
	}
	var numbers []int
	var b strings.Builder
	for i := range list {
		if list[i].OK == nil {
			continue
		}
		numbers = append(numbers, i+1)
		b.WriteString("Attempt " + strconv.Itoa(i+1) + ":\n" + text.Clip(text.Of(list[i].OK), maxBallot/len(list)) + "\n\n")
	}
	return value(struct {
		Count   int    `json:"count"`
		Numbers []int  `json:"numbers"`
		Text    string `json:"text"`
	}{len(numbers), numbers, strings.TrimSpace(b.String())})
}

// Best gives the best one of the attempts of the node `attempts`. With `scored` each gave {output,
// score}: the highest score is the best, the first of several, and the result is {best, number, scores},
// in which the score of an attempt that failed or was canceled is null. Otherwise the node `judge` chose,
// as {best, reason}, unless there is one attempt alone, and the result is {best, number, reason}.
func Best(_ context.Context, c *workgraph.Call) (workgraph.Outcome, error) {
	var a struct {
		Attempts string `json:"attempts"`
		Judge    string `json:"judge"`
		Scored   bool   `json:"scored"`
	}
	if err := own(c, &a); err != nil {
		return workgraph.Outcome{}, err
	}
	list, from, err := attemptsOf(c, a.Attempts)
	if err != nil {
		return workgraph.Outcome{}, err
	}
	if a.Scored {
		return highest(list)
	}
	return chosen(c, list, from, a.Judge)
}

// highest is the attempt with the highest score.
func highest(list []attempt) (workgraph.Outcome, error) {
	var out struct {
		Best   json.RawMessage `json:"best"`
		Number int             `json:"number"`
		Scores []*json.Number  `json:"scores"`
	}
	out.Scores = make([]*json.Number, len(list))
	most := 0.0
	for i := range list {
		var scored struct {
			Output json.RawMessage `json:"output"`
			Score  *json.Number    `json:"score"`
		}
		if list[i].OK == nil {
			continue
		}
		if json.Unmarshal(list[i].OK, &scored) != nil || scored.Score == nil {
			return workgraph.Outcome{}, workgraph.Errorf(workgraph.Permanent, ReasonArguments, "the attempt %d has no score", i+1)
		}
		out.Scores[i] = scored.Score
		n, err := scored.Score.Float64()
		if err != nil {
			return workgraph.Outcome{}, workgraph.Errorf(workgraph.Permanent, ReasonArguments, "the score of the attempt %d: %v", i+1, err)
		}
		if out.Number == 0 || n > most {
			out.Best, out.Number, most = scored.Output, i+1, n
		}
	}
	return value(out)
}

// chosen is the attempt that the judge has chosen.
func chosen(c *workgraph.Call, list []attempt, from workgraph.NodeResult, judge string) (workgraph.Outcome, error) {
	var choice struct {
		Best   int    `json:"best"`
		Reason string `json:"reason"`
	}
	good := 0
	for i := range list {
		if list[i].OK != nil {
			good, choice.Best = good+1, i+1
		}
	}
	if good > 1 {
		said, ok := c.Ancestor(judge)
		choice.Best = 0
		// In a loop the judge of an earlier round may be found.
		if !ok || said.Visit != from.Visit || json.Unmarshal(said.Result(), &choice) != nil || choice.Best < 1 || choice.Best > len(list) || list[choice.Best-1].OK == nil {
			return workgraph.Outcome{}, workgraph.Errorf(workgraph.Permanent, ReasonNoChoice, "the judge chose no attempt that has succeeded")
		}
	}
	return value(struct {
		Best   json.RawMessage `json:"best"`
		Number int             `json:"number"`
		Reason string          `json:"reason"`
	}{list[choice.Best-1].OK, choice.Best, choice.Reason})
}
