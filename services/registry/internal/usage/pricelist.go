package usage

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"fmt"

	"github.com/epigraph-run/epigraph/internal/ids"
	"github.com/epigraph-run/epigraph/internal/pricelist"
)

//go:embed prices.yaml
var shipped []byte

// Defaults returns the prices that come with the registry: public list prices of well-known models, each from
// the day it began, and one for the scripted models of demos and tests. They hold for every namespace that
// has no price of its own.
func Defaults() ([]Price, error) {
	list, err := Shipped()
	if err != nil {
		return nil, err
	}
	out := make([]Price, len(list.Prices))
	for i, p := range list.Prices {
		// The same row has the same id in every registry.
		seed := sha256.Sum256([]byte(p.Model))
		id, err := ids.NewGenerator(bytes.NewReader(seed[:])).At(PricePrefix, p.ValidFrom)
		if err != nil {
			return nil, fmt.Errorf("make id of %s: %w", p.Model, err)
		}
		out[i] = Price{
			ID: id, Provider: p.Provider, Model: p.Model, ValidFrom: p.ValidFrom, Input: p.Input, CachedInput: p.CachedInput, Output: p.Output,
			Reasoning: p.Reasoning,
		}
	}
	return out, nil
}

// Shipped is the file of the prices that come with the registry, which says their date and source.
func Shipped() (pricelist.List, error) {
	list, err := pricelist.Read(shipped, false)
	if err != nil {
		return list, fmt.Errorf("read the prices that come with the registry: %w", err)
	}
	return list, nil
}
