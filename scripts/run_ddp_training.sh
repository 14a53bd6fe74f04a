#!/usr/bin/env bash
# Another name of main_train_ddp.sh: scripts/run_ddp_training.sh [--config FILE] [--experiment_name NAME]
# [--wandb_project NAME] [WORKER OPTION...]
exec "$(dirname "$0")/main_train_ddp.sh" "$@"
