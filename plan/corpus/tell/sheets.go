package tell

var sheets = []style{}
var values = []style{}
var codes = []style{}
var diagrams = []style{}
var proses = []style{}
var faults = []style{}
var nonplans = []style{}
