package main

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/epigraph-run/epigraph/plan/corpus/generate"
)

// readTexts reads the hand-written texts of a folder; see texts/README.md for their format.
func readTexts(dir string) ([]generate.Text, error) {
	names, err := filepath.Glob(filepath.Join(dir, "*.txt"))
	if err != nil {
		return nil, err
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("%s: %w", dir, os.ErrNotExist)
	}
	var all []generate.Text
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		texts, err := parseTexts(string(b))
		if err != nil {
			return nil, fmt.Errorf("%s:%w", name, err)
		}
		all = append(all, texts...)
	}
	return all, nil
}

// parseTexts reads the records of one file.
func parseTexts(s string) (all []generate.Text, err error) {
	var t *generate.Text
	var body []string
	inBody := false
	for i, line := range strings.Split(s, "\n") {
		fault := func(format string, args ...any) error {
			return fmt.Errorf("%d: %s", i+1, fmt.Sprintf(format, args...))
		}
		switch {
		case inBody && line == ">>>":
			t.Body = strings.Join(body, "\n")
			all = append(all, *t)
			t, body, inBody = nil, nil, false
		case inBody:
			body = append(body, line)
		case strings.TrimSpace(line) == "":
		case strings.HasPrefix(line, "@@ "):
			f := strings.Fields(line)
			if t != nil || len(f) != 3 {
				return nil, fault("a record starts with @@ style/name lang, after the end of the one before")
			}
			style, _, _ := strings.Cut(f[1], "/")
			t = &generate.Text{ID: f[1], Style: style, Lang: f[2], Form: generate.FormOf(style)}
		case t == nil:
			return nil, fault("a line outside a record")
		case line == "<<<":
			inBody = true
		default:
			key, value, _ := strings.Cut(line, ":")
			if err := setField(t, key, strings.TrimSpace(value)); err != nil {
				return nil, fault("%s: %v", t.ID, err)
			}
		}
	}
	if t != nil {
		return nil, fmt.Errorf("0: the record %s has no end", t.ID)
	}
	return all, nil
}

func setField(t *generate.Text, key, value string) error {
	switch key {
	case "nodes":
		if value == "none" {
			t.NoPlan, t.Form = true, "none"
		} else {
			t.Nodes = splitTrim(value, "|")
		}
	case "edges":
		if value == "any" {
			t.EdgesOpen = true
			return nil
		}
		for _, x := range splitTrim(value, ",") {
			from, to, ok := strings.Cut(x, " > ")
			if !ok {
				return fmt.Errorf("%q is no edge", x)
			}
			t.Edges = append(t.Edges, generate.Edge{strings.TrimSpace(from), strings.TrimSpace(to)})
		}
	case "ids":
		t.Hidden = value == "hidden"
	case "alt":
		t.Alt = append(t.Alt, splitTrim(value, "|"))
	case "report":
		t.Report = splitTrim(strings.ReplaceAll(value, "|", ","), ",")
	case "note":
		t.Note = value
	default:
		return fmt.Errorf("an unknown line %q", key)
	}
	return nil
}

func splitTrim(s, sep string) []string {
	var out []string
	for _, x := range strings.Split(s, sep) {
		if x = strings.TrimSpace(x); x != "" {
			out = append(out, x)
		}
	}
	return out
}

// checkText lists the faults of the truth of a text.
func checkText(t *generate.Text) (faults []string) {
	say := func(format string, args ...any) { faults = append(faults, t.ID+": "+fmt.Sprintf(format, args...)) }
	if strings.TrimSpace(t.Body) == "" {
		say("no text")
	}
	if t.NoPlan {
		if len(t.Nodes)+len(t.Edges)+len(t.Report) > 0 {
			say("no plan, but nodes, edges or faults")
		}
		return faults
	}
	if len(t.Nodes) == 0 {
		say("no nodes")
	}
	known, body := setOf(t.Nodes), strings.ToLower(spaces.ReplaceAllString(t.Body, " "))
	if len(known) != len(t.Nodes) && !slices.Contains(t.Report, "DUPLICATE_ID") {
		say("a duplicate node")
	}
	for _, a := range t.Alt {
		if len(a) != len(t.Nodes) {
			say("alternative ids of a different number")
		}
	}
	for _, e := range t.Edges {
		if (!known[e[0]] || !known[e[1]]) && !slices.Contains(t.Report, "UNKNOWN_REF") {
			say("the edge %s > %s names no node", e[0], e[1])
		}
	}
	for _, x := range t.Nodes {
		if !strings.Contains(body, strings.ToLower(x)) && !strings.ContainsAny(x, "0123456789٠١٢٣٤٥٦٧٨٩") {
			say("the node %s is not in the text", x)
		}
	}
	return faults
}

// fresh is a record of a file with the format of fresh.jsonl.gz.
type fresh struct {
	ID, Style, Lang, Text string
	Expected              *struct {
		Nodes []string
		Edges *[]generate.Edge
	}
	AltNodes   [][]string `json:"alt_nodes"`
	IDsShown   *bool      `json:"ids_shown"`
	MustReport []string   `json:"must_report"`
	PartsOK    bool       `json:"parts_ok"`
}

// readFresh reads texts with truth from JSON Lines, gzipped if the name ends so.
func readFresh(path string) (all []generate.Text, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	var r io.Reader = bufio.NewReader(f)
	if strings.HasSuffix(path, ".gz") {
		if r, err = gzip.NewReader(r); err != nil {
			return nil, err
		}
	}
	dec := json.NewDecoder(r)
	for {
		var x fresh
		if err := dec.Decode(&x); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, fmt.Errorf("record %d: %w", len(all)+1, err)
		}
		t := generate.Text{
			ID: x.ID, Style: x.Style, Lang: x.Lang, Body: x.Text, NoPlan: x.Expected == nil, Alt: x.AltNodes, PartsOK: x.PartsOK,
			Report: x.MustReport, Hidden: x.IDsShown != nil && !*x.IDsShown, Form: generate.FormOf(x.Style),
		}
		if x.Expected != nil {
			t.Nodes, t.EdgesOpen = x.Expected.Nodes, x.Expected.Edges == nil
			if !t.EdgesOpen {
				t.Edges = *x.Expected.Edges
			}
		}
		all = append(all, t)
	}
}
