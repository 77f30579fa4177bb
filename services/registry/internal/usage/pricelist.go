package usage

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"time"

	"github.com/epigraph-run/epigraph/internal/ids"
)

// Defaults returns the prices that come with the registry: public list prices of well-known models,
// each from the day it began, and one for the scripted models of demos and tests. They hold for every
// namespace that has no price of its own. A changed price is a new row: rows that were shipped stay.
func Defaults() ([]Price, error) {
	// Prices are micro-USD per million tokens here, which keeps the list readable. A negative number means
	// that the class has no price of its own. Only the alias and its dated snapshots are listed: an unknown
	// variant (audio, search …) must stay without a price instead of getting a wrong one.
	rows := []struct {
		models                []string
		from                  string
		input, cached, output int64
	}{
		{snapshots("gpt-5"), "2025-08-07", 1_250_000, 125_000, 10_000_000},
		{snapshots("gpt-5-mini"), "2025-08-07", 250_000, 25_000, 2_000_000},
		{snapshots("gpt-5-nano"), "2025-08-07", 50_000, 5_000, 400_000},
		{snapshots("gpt-4.1"), "2025-04-14", 2_000_000, 500_000, 8_000_000},
		{snapshots("gpt-4.1-mini"), "2025-04-14", 400_000, 100_000, 1_600_000},
		{snapshots("gpt-4.1-nano"), "2025-04-14", 100_000, 25_000, 400_000},
		{[]string{"gpt-4o", "gpt-4o-2024-05-13"}, "2024-05-13", 5_000_000, -1, 15_000_000},
		{[]string{"gpt-4o-2024-08-06"}, "2024-08-06", 2_500_000, -1, 10_000_000},
		{[]string{"gpt-4o", "gpt-4o-2024-08-06", "gpt-4o-20*"}, "2024-10-02", 2_500_000, 1_250_000, 10_000_000},
		{snapshots("gpt-4o-mini"), "2024-07-18", 150_000, -1, 600_000},
		{snapshots("gpt-4o-mini"), "2024-10-02", 150_000, 75_000, 600_000},
		{snapshots("gpt-4-turbo"), "2024-04-09", 10_000_000, -1, 30_000_000},
		{[]string{"gpt-4", "gpt-4-0613"}, "2023-06-13", 30_000_000, -1, 60_000_000},
		{[]string{"gpt-3.5-turbo", "gpt-3.5-turbo-0125"}, "2024-02-16", 500_000, -1, 1_500_000},
		{snapshots("o1"), "2024-12-17", 15_000_000, 7_500_000, 60_000_000},
		{snapshots("o1-mini"), "2024-09-12", 3_000_000, -1, 12_000_000},
		{snapshots("o1-mini"), "2025-01-31", 1_100_000, 550_000, 4_400_000},
		{snapshots("o3-mini"), "2025-01-31", 1_100_000, 550_000, 4_400_000},
		{snapshots("o3"), "2025-04-16", 10_000_000, 2_500_000, 40_000_000},
		{snapshots("o3"), "2025-06-10", 2_000_000, 500_000, 8_000_000},
		{snapshots("o4-mini"), "2025-04-16", 1_100_000, 275_000, 4_400_000},
		{[]string{"text-embedding-3-small"}, "2024-01-25", 20_000, -1, 0},
		{[]string{"text-embedding-3-large"}, "2024-01-25", 130_000, -1, 0},
		{[]string{"fake-*", "scripted*"}, "2020-01-01", 1_000_000, 250_000, 4_000_000},
	}
	var out []Price
	for _, r := range rows {
		from, err := time.Parse(time.DateOnly, r.from)
		if err != nil {
			return nil, fmt.Errorf("read date of %v: %w", r.models, err)
		}
		for _, model := range r.models {
			// The same row has the same id in every registry.
			seed := sha256.Sum256([]byte(model))
			id, err := ids.NewGenerator(bytes.NewReader(seed[:])).At(PricePrefix, from)
			if err != nil {
				return nil, fmt.Errorf("make id of %s: %w", model, err)
			}
			p := Price{ID: id, Model: model, ValidFrom: from, Input: nano(r.input), Output: nano(r.output)}
			if r.cached >= 0 {
				cached := nano(r.cached)
				p.CachedInput = &cached
			}
			out = append(out, p)
		}
	}
	return out, nil
}

func snapshots(model string) []string { return []string{model, model + "-20*"} }

func nano(micro int64) int64 { return micro * 1000 }
