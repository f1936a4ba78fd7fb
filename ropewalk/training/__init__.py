"""Parts for `transformers.Trainer`, each of use on its own: batches of windows, a callback that
holds the model to its plan, and a trainer that shards windows and weights over ranks."""
