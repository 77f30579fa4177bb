package form

func umlAt(*Source, int) *Diagram { return nil }
