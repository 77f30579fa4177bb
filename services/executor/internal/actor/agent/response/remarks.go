package response

import (
	"encoding/json"
	"slices"
)

// Remarks is what a text says beside what is to be done, in the XML form or in a JSON object: what is said to
// the user, the status and its descriptions, and learnings. What is to be done, and what cannot be read, is
// left out.
func Remarks(text string) *Response {
	if top, ok, err := elements(text); ok {
		r := &Response{}
		if err == nil {
			top = slices.DeleteFunc(top, func(e *element) bool { return e.tag == tagNextActions })
			_ = r.takeAll(top) // a status that is none is left out
		}
		return r
	}
	found, err := within(text)
	if err != nil {
		return &Response{}
	}
	for _, raw := range found {
		if r, err := readRemarks(raw); err == nil && raw[0] == '{' {
			return r
		}
	}
	return &Response{}
}

// With is the response with a graph to be done, of which the status follows as in Read.
func (r *Response) With(graph json.RawMessage) *Response {
	r.Graph = graph
	out, err := finish(r, nil)
	if err != nil { // Pending without a question
		r.Status = Ongoing
		return r
	}
	return out
}
