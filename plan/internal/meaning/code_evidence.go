package meaning

import "github.com/epigraph-run/epigraph/plan/internal/form"

func readEvidence(*form.Source, int, int) *Reading { return nil }

func readPseudo(*form.Source, int, int) *Reading { return nil }

func parallelWord(string) bool { return false }

func readScheduler([]*form.Stmt) *program { return nil }
func readClasses([]*form.Stmt) *program   { return nil }
func readAssets([]*form.Stmt) *program    { return nil }
func readBuilder([]*form.Stmt) *program   { return nil }
func readPipeline([]*form.Stmt) *program  { return nil }
