package plantest

// Slip is an object as models write it.
type Slip struct {
	Name, Text string
	// JSON is what it means, or empty if nobody can say.
	JSON string
}

// Slips are objects with the slips of models, and some that are broken beyond doubt.
func Slips() []Slip {
	return []Slip{
		{"Plain", `{"a": 9007199254740993, "b": 1.10}`, `{"a": 9007199254740993, "b": 1.10}`},
		{"SingleQuotes", `{'a': 'it is', "b": 'x "y"'}`, `{"a": "it is", "b": "x \"y\""}`},
		{"TrailingCommas", `{"a": [1, 2,], "b": {"c": 1,},}`, `{"a": [1, 2], "b": {"c": 1}}`},
		{"MissingComma", "{\"a\": 1\n\"b\": 2}", `{"a": 1, "b": 2}`},
		{"Python", `{'a': True, 'b': False, 'c': None, 'd': (1, 2), 'e': """two "quotes" here"""}`, `{"a": true, "b": false, "c": null, "d": [1, 2], "e": "two \"quotes\" here"}`},
		{"BareKeys", `{a: 1, b_c: "x"}`, `{"a": 1, "b_c": "x"}`},
		{"SmartQuotes", `{“a”: “x”}`, `{"a": "x"}`},
		{"Comments", "{\"a\": 1, // the first\n# and\n\"b\": /* two */ 2}", `{"a": 1, "b": 2}`},
		{"InnerQuotes", `{"a": "she said "no" to it", "b": 1}`, `{"a": "she said \"no\" to it", "b": 1}`},
		{"LineBreaks", "{\"a\": \"one\ntwo\"}", `{"a": "one\ntwo"}`},
		{"InnerBracket", `{"a": [{"b": 1}, {"b": 2}}`, `{"a": [{"b": 1}, {"b": 2}]}`},
		{"SurplusBrackets", `{"a": 1}}]`, `{"a": 1}`},
		{"Numbers", `{"a": +1, "b": .5, "c": -.5, "d": 2.}`, `{"a": 1, "b": 0.5, "c": -0.5, "d": 2.0}`},
		{"WideSpace", "{\u00a0\"a\":\u3000 1}", `{"a": 1}`},

		{"CutOff", `{"a": [{"b": 1}, {"b": 2}]`, ``},
		{"CutOffText", `{"a": "half of a te`, ``},
		{"CutOffKey", `{"a": 1, "b`, ``},
		{"NoValue", `{"a": , "b": 1}`, ``},
		{"BareText", `{"a": see above}`, ``},
		{"Undefined", `{"a": undefined}`, ``},
		{"NaN", `{"a": NaN}`, ``},
		{"Zeros", `{"a": 007}`, ``},
		{"Call", `{"a": now()}`, ``},
		{"TwoTexts", `{"a": ["x" "y"]}`, ``},
		{"LostQuote", "{\"a\": \"x,\n\"b\": 1}", ``},
		{"LostKeyQuote", `{"a: [1]}`, ``},
		{"NoColon", `{"a" 1}`, ``},
		{"KeyInList", `{"a": ["x", "b": 1}`, ``},
		{"WrongBracket", `{"a": 1], "b": 2}`, ``},
		{"ClosedTooEarly", `{"a": [{"b": 1}]}, {"b": 2}]}`, ``},
		{"OnlyBracket", `{`, ``},
	}
}
