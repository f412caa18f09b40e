package server

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"

	"sparrow/api/openai"
	"sparrow/internal/wire"
)

// inputItemsSuffix follows the id of a stored response in a path.
const inputItemsSuffix = "/input_items"

// Default and maximum number of items on a page.
const (
	defaultItems = 20
	mostItems    = 100
)

// inputItems handles GET /v1/responses/{id}/input_items: it returns a page of the conversation before the answer. The
// last item is first, unless order is asc.
func (s *responsesAPI) inputItems(w http.ResponseWriter, r *http.Request, id string) error {
	found := s.store.get(exchangeOf(r).tenant, id)
	if found == nil {
		return s.noResponse(id)
	}
	q := r.URL.Query()
	limit := defaultItems
	if text := q.Get("limit"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > mostItems {
			return wire.NewError(wire.CodeOutOfRange, "limit", "is %.40q; want 1 to %d", text, mostItems)
		}
		limit = n
	}
	items := make([]openai.Item, len(found.conversation))
	for i, it := range found.conversation {
		if it.ID == "" { // clients need ids to request the next page
			it.ID = fmt.Sprintf("in_%s_%d", found.response.ID, i)
		}
		items[i] = it
	}
	switch order := q.Get("order"); order {
	case "", "desc":
		slices.Reverse(items)
	case "asc":
	default:
		return wire.NewError(wire.CodeInvalidValue, "order", "is %.40q; want asc or desc", order)
	}
	if after := q.Get("after"); after != "" {
		i := slices.IndexFunc(items, func(it openai.Item) bool { return it.ID == after })
		if i < 0 {
			return wire.NewError(wire.CodeInvalidValue, "after", "the response has no item with the id %.100q", after)
		}
		items = items[i+1:]
	}
	list := openai.ItemList{Object: openai.ObjectList, HasMore: len(items) > limit,
		Data: items[:min(limit, len(items))]}
	if n := len(list.Data); n > 0 {
		list.FirstID, list.LastID = &list.Data[0].ID, &list.Data[n-1].ID
	}
	return s.respond(w, http.StatusOK, list)
}
