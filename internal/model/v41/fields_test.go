package v41_test

import (
	"strings"
	"testing"

	"sparrow/internal/model/config"
	"sparrow/internal/testmodel"
)

// Invalid shapes of n-gram tables and invalid lists of sharing layers are refused with an error that names the field
// and the allowed values.
func TestV41FieldsAreChecked(t *testing.T) {
	if _, err := config.Describe("config.json", []byte(testmodel.V41Config)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ was, is, want string }{
		{`"num_nextn_predict_layers": 0`, `"num_nextn_predict_layers": 1000000000`,
			"num_nextn_predict_layers is 1000000000, want 0 to 4096"},
		{`"num_nextn_predict_layers": 0`, `"num_nextn_predict_layers": 2`, "there are no dspark_ fields"},
		{`"engram_max_ngram_size": 4`, `"engram_max_ngram_size": 1`, "engram_max_ngram_size is 1, want at least 2"},
		{`"engram_max_ngram_size": 4`, `"engram_max_ngram_size": 9`, "engram_max_ngram_size"},
		{`"engram_max_ngram_size": 4,`, ``, "engram_max_ngram_size"},
		{`"engram_n_heads": 2`, `"engram_n_heads": 0`, "engram_n_heads"},
		{`"engram_pad_token_id": 2`, `"engram_pad_token_id": 640`,
			"engram_pad_token_id is 640, want a token of the vocabulary of 640"},
		{`"engram_pad_token_id": 2`, `"engram_pad_token_id": -1`, "engram_pad_token_id is -1"},
		{`[1916, 2148]`, `[1916, 2147]`, "engram_num_embeddings"},
		{`[1916, 2148]`, `[1916]`, "engram_num_embeddings"},
		{`"engram_layer_ids": [0, 3]`, `"engram_layer_ids": [3, 0]`, "engram_layer_ids is [3 0], want ascending"},
		{`"engram_layer_ids": [0, 3]`, `"engram_layer_ids": [0, 6]`, "engram_layer_ids is [0 6]"},
		{`"engram_layer_ids": [0, 3]`, `"engram_layer_ids": [-1, 3]`, "engram_layer_ids is [-1 3], want ascending"},
		{`"kv_source_layer_ids": [1, 3]`, `"kv_source_layer_ids": [-1, 3]`, "kv_source_layer_ids is [-1 3]"},
		{`"candidate_source_layer_id": 3`, `"candidate_source_layer_id": 4`,
			"candidate_source_layer_id is 4, want a layer that compresses and selects"},
		{`"candidate_source_layer_id": 3`, `"candidate_source_layer_id": 2`, "candidate_source_layer_id is 2"},
		{`"kv_source_layer_ids": [1, 3]`, `"kv_source_layer_ids": [0, 3]`, "kv_source_layer_ids is [0 3]"},
		{`"kv_source_layer_ids": [1, 3]`, `"kv_source_layer_ids": [1, 1]`, "kv_source_layer_ids is [1 1]"},
		{`"index_source_layer_ids": [1, 3, 4]`, `"index_source_layer_ids": [1, 3, 6]`, "index_source_layer_ids is"},
		{`"index_source_layer_ids": [1, 3, 4]`, `"index_source_layer_ids": []`, "index_source_layer_ids"},
	} {
		text := strings.Replace(testmodel.V41Config, c.was, c.is, 1)
		_, err := config.Describe("config.json", []byte(text))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.is, err, c.want)
		}
	}
}
