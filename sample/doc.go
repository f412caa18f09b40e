// Package sample samples a token from a row of logits.
//
// The input is a row of logits [vocabulary], the parameters of the request ([Params]) and optionally the tokens that a
// grammar allows ([Mask]). The output is a [Choice], with log probabilities if requested. [StopMatcher] finds stop
// strings. The package does not depend on a model, a batch or a clock.
//
// # Order of operations
//
//  1. logit_bias is added
//  2. repetition_penalty divides positive logits and multiplies negative ones,
//     for every token of the prompt and of the output
//  3. frequency_penalty times the count, and presence_penalty once, are
//     subtracted for every token of the output
//  4. the mask removes tokens that the grammar forbids
//  5. logits are divided by temperature; below [GreedyBelow] the largest is chosen
//  6. top_k keeps the k largest
//  7. top_p keeps the most likely of those until their probabilities reach p
//  8. min_p drops tokens less likely than p times the most likely token
//
// Steps 1 to 3 are in vLLM's order, steps 6 to 8 in SGLang's. As in vLLM, top_p applies to the probabilities of the
// tokens that top_k keeps, and penalties count the same tokens. Of equal logits, the one with the lower id is preferred
// in every step. Steps 5 to 8 use integer weights (weight.go), whose sums do not depend on the order of addition, so
// that a device that adds them in parallel samples the same tokens ([Draw]). Tokens whose logit is more than 30
// temperatures below the largest are never sampled: their probability is less than 1e-13 of that of the most likely
// token.
//
// # Randomness
//
// The random number of output token k of choice i is a pure function of (seed, i, k): see [Uniform]. A sequence
// therefore has the same numbers alone, in a batch, after preemption, and in the verification of drafts.
// [Sampler.Sample] does not change the state of the sequence; [Sampler.Accept] advances it. A verifier calls Sample and
// Accept row by row until a token differs from the draft. Its tokens are exactly those of decoding without drafts, at
// any temperature. [Sampler.Probabilities] returns the distribution, for rejection sampling.
//
// # Log probabilities
//
// They are the log-softmax of the model's logits, before all steps above. A token that was sampled because of a mask or
// a bias may have a very low one.
package sample
