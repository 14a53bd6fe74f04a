"""Prints what TensorBoard's own reader finds in a folder of event files, as JSON: {"scalars": {tag: [[step, value]...]}, "texts": {tag: text}}.

    python scripts/reference/read_tensorboard.py OUTPUT_DIR/tensorboard      (needs the package tensorboard)
"""
import json
import sys

from tensorboard.backend.event_processing import event_accumulator


def main(folder):
    reader = event_accumulator.EventAccumulator(folder, size_guidance={event_accumulator.SCALARS: 0, event_accumulator.TENSORS: 0})
    reader.Reload()
    tags = reader.Tags()
    json.dump(
        {
            "scalars": {tag: [[event.step, event.value] for event in reader.Scalars(tag)] for tag in tags["scalars"]},
            "texts": {tag: reader.Tensors(tag)[-1].tensor_proto.string_val[0].decode() for tag in tags["tensors"]},
        },
        sys.stdout,
    )


if __name__ == "__main__":
    main(sys.argv[1])
