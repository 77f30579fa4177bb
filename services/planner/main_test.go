package planner_test

import (
	"testing"

	"github.com/epigraph-run/epigraph/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }
